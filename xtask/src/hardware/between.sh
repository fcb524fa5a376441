# Stands in for ssh between two virtual machines that share a folder: `serve` runs the scripts that the other one's
# `call` leaves there, until `over` is called.
#
#   between.sh FOLDER serve | between.sh FOLDER call HOST SCRIPT | between.sh FOLDER over
set -u
folder=$1
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
            sleep 0.05
        done
        ;;
    call)
        name=$(mktemp "$folder/call.XXXXXX") || exit 1
        printf '%s\n' "$4" >"$name.new"
        mv "$name.new" "$name.script"
        until [ -e "$name.status" ]; do sleep 0.05; done
        cat "$name.out"
        cat "$name.err" >&2
        exit "$(cat "$name.status")"
        ;;
    over) touch "$folder/over" ;;
esac
