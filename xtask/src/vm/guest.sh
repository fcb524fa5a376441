# Runs in the guest on the host's files: makes the RDMA devices, runs the command, and leaves its status.
# Its own messages go to standard error, as the command's do.

exchange=/run/farcall-vm
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

# The ports can be opened once only, so `cat` stands between: the command may open /dev/stdout as often as it likes.
# Their names hold the number of a device, which depends on the others.
exec </dev/null
exec > >(exec cat >"$(echo /dev/vport*p1)") || exit
stdout_writer=$!
exec 2> >(exec cat >"$(echo /dev/vport*p2)") || exit
stderr_writer=$!

finish() {
    exec >&- 2>&-
    # A process that the command left behind may hold the output open: it gets one second.
    for _ in {1..20}; do
        kill -0 "$stdout_writer" 2>/dev/null || kill -0 "$stderr_writer" 2>/dev/null || break
        sleep 0.05
    done
    sync
    exit
}

must() {
    "$@" || { echo "guest: this failed: $*" >&2; finish; }
}

# Two devices on the ends of one virtual cable. Both ends live in this one machine, so the kernel would deliver between
# them without using the cable; the rules make packets cross it, and faults of the cable act on them.
two_devices() {
    must ip link add v0 mtu 4500 type veth peer name v1 mtu 4500
    for interface in all default v0 v1; do
        echo 1 >/proc/sys/net/ipv4/conf/$interface/accept_local
        echo 0 >/proc/sys/net/ipv4/conf/$interface/rp_filter
    done
    local end other
    for end in 0 1; do
        must ip address add "10.0.$end.1/32" dev "v$end"
        must ip link set "v$end" up
    done
    for end in 0 1; do
        other=$((1 - end))
        must ip route add "10.0.$other.1/32" dev "v$end" src "10.0.$end.1" table "$((101 + end))"
        must ip rule add pref 1 iif "v$end" lookup local
        must ip rule add pref 2 to "10.0.$other.1" lookup "$((101 + end))"
    done
    # The rule for local addresses must stand behind those above.
    must ip rule add pref 10 lookup local
    must ip rule del pref 0
    must rdma link add rxe0 type rxe netdev v0
    must rdma link add rxe1 type rxe netdev v1
}

# One device on the network card that joins this host with the other one.
one_device() { # this host's index
    local other=10.0.2.$((2 - $1))
    must ip link set eth0 mtu 4500
    must ip address add "10.0.2.$(($1 + 1))/24" dev eth0
    must ip link set eth0 up
    must rdma link add rxe0 type rxe netdev eth0
    for _ in {1..60}; do
        busybox ping -q -c 1 -W 1 "$other" >/dev/null 2>&1 && return
    done
    must false "no answer from the other host, $other"
}

ulimit -l unlimited
ip link set lo up
# For those who count events of the kernel.
mount -t tracefs tracefs /sys/kernel/tracing || echo "guest: nothing can be traced" >&2
# What answers a few large READs is more than the usual 1,000 packets. A cable that drops them makes Soft-RoCE send
# them again, and its requester takes an answer that it no longer waits for as the end of its queue pair.
echo 30000 >/proc/sys/net/core/netdev_max_backlog
mapfile -d '' -t environment <"$exchange/environment"
mapfile -d '' -t command <"$exchange/command"
host=$(<"$exchange/host")
case $(<"$exchange/hosts") in
    1) two_devices ;;
    2) one_device "$host" ;;
esac
must cd "$(<"$exchange/directory")"
echo >"$exchange/started"
env -i "${environment[@]}" "${command[@]}"
echo $? >"$exchange/status"
finish
