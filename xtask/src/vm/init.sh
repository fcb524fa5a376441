#!/bin/busybox sh
# The guest's first process: loads the modules, lays a writable file system over the host's, and runs guest.sh in it.
# `farcall_limit` (seconds) comes from the kernel's command line.

/bin/busybox --install -s /bin
export PATH=/bin

power_off() {
    echo "init: $1"
    for proc in /proc /host/proc; do
        [ -w "$proc/sysrq-trigger" ] && echo o >"$proc/sysrq-trigger"
    done
    sleep 60
}

mount_9p() { # tag, folder, options
    mount -t 9p -o "trans=virtio,version=9p2000.L,$3" "$1" "$2" || power_off "cannot mount $1"
}

mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev

# If the host's side has been killed, nobody else ends this machine.
(sleep "$farcall_limit" && power_off "time is over") &

while read -r module; do
    insmod "/modules/$module" || power_off "cannot load $module"
done </modules/order

mount_9p root /lower msize=524288,cache=loose,ro
mount -t tmpfs tmpfs /upper
mkdir /upper/files /upper/work
mount -t overlay -o lowerdir=/lower,upperdir=/upper/files,workdir=/upper/work overlay /host ||
    power_off "cannot make the root writable"

for folder in proc sys dev; do
    mount --move "/$folder" "/host/$folder"
done
mkdir -p /host/dev/pts /host/dev/shm /host/guest
ln -s /proc/self/fd /host/dev/fd
ln -s fd/0 /host/dev/stdin
ln -s fd/1 /host/dev/stdout
ln -s fd/2 /host/dev/stderr
mount -t devpts devpts /host/dev/pts
mount -t tmpfs tmpfs /host/dev/shm
mount -t tmpfs tmpfs /host/run
mkdir /host/run/farcall-vm
mount_9p exchange /host/run/farcall-vm msize=131072,cache=none
mount_9p share /host/guest msize=131072,cache=none

chroot /host /bin/bash /run/farcall-vm/guest.sh
power_off "done"
