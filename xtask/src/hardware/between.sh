# Stands in for ssh between two virtual machines that share a folder: `serve` runs the scripts that the other one's
# `call` leaves there, until `over` is called.
#
#   between.sh FOLDER serve | between.sh FOLDER call HOST SCRIPT | between.sh FOLDER over
set -u
folder=$1

# Waits for a while. A `sleep` would be a process each time, which an emulated host starts in 10 ms of its processor.
exec {never}<> <(:)
wait_a_while() { read -rt 0.1 -u "$never" || true; }

case $2 in
    serve)
        while [ ! -e "$folder/over" ]; do
            for script in "$folder"/*.script; do
                [ -e "$script" ] || continue
                name=${script%.script}
                mv "$script" "$name.running"
                (
                    bash "$name.running" >"$name.out" 2>"$name.err" </dev/null
                    echo $? >"$name.end"
                    mv "$name.end" "$name.status"
                ) &
            done
            wait_a_while
        done
        ;;
    call)
        name=$(mktemp "$folder/call.XXXXXX") || exit 1
        printf '%s\n' "$4" >"$name.new"
        mv "$name.new" "$name.script"
        until [ -e "$name.status" ]; do wait_a_while; done
        cat "$name.out"
        cat "$name.err" >&2
        exit "$(cat "$name.status")"
        ;;
    over) touch "$folder/over" ;;
esac
