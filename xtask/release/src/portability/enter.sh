# Runs a command in a machine's folder. This shell is the first process of a mount namespace and of a PID namespace:
# when it ends, or is killed, every process of the machine ends with it, and every mount below goes away.
# Arguments: the machine's folder, the toolchain, the user, the command with its arguments.
root=$1 toolchain=$2 user=$3
shift 3
mount --rbind /dev "$root/dev"
mount --rbind /sys "$root/sys"
mount -t proc proc "$root/proc"
mkdir -p "$root/opt/rust"
mount --bind "$toolchain" "$root/opt/rust"
mount -o remount,bind,ro "$root/opt/rust"
# No `exec`: the first process of a PID namespace inherits orphans, and a shell reaps them.
chroot --userspec="$user" "$root" "$@"
