//! The table: causes, and the scripts that put them into a host.

/// A place where a cause can be put into a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// Any Linux host that allows namespaces.
    Anywhere,
    /// The virtual machine, with Soft-RoCE devices and as root.
    Devices,
}

/// A cause, and the script that puts it into a host and runs `doctor`.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) cause: &'static str,
    /// Means of the injection, for the table.
    pub(crate) injection: &'static str,
    pub(crate) place: Place,
    pub(crate) script: &'static str,
}

const fn row(
    cause: &'static str,
    injection: &'static str,
    place: Place,
    script: &'static str,
) -> Row {
    Row { cause, injection, place, script }
}

/// Functions of the scripts. `doctor` prints the report, whatever its exit code is. `private` runs
/// the rest of a script with mounts of its own, or ends it with the code for "not here".
pub(crate) const PRELUDE: &str = r#"
doctor() { "$FARCALL" doctor --format json "$@" || test $? -eq 1; }
private() {
    flags=-m
    test "$(id -u)" -eq 0 || flags=-rm
    unshare $flags true 2>/dev/null || exit 77
    unshare $flags sh -euc "$1"
}
# A device on an interface of its own, which the script takes away again.
soft_device() { # MTU
    ip link add d0 mtu "$1" type dummy
    trap 'rdma link delete rxe9; ip link delete d0' EXIT
    rdma link add rxe9 type rxe netdev d0
}
gids=/sys/class/infiniband/rxe9/ports/1/gids
# The kernel fills GID tables a little later.
until_gids() { # PATTERN
    for _ in $(seq 100); do
        cat $gids/[0-7] 2>/dev/null | grep -q "$1" && return
        sleep 0.1
    done
    echo "no GID $1" >&2
    return 1
}
"#;

/// The rows. Those that change the mode of namespaces come first: no other may be left over.
pub(crate) const ROWS: &[Row] = &[
    row(
        "gid-table",
        "rdma system set netns exclusive, unshare -n",
        Place::Devices,
        r#"
        rdma system set netns exclusive
        # The kernel takes the namespace away a little later.
        trap 'for _ in $(seq 100); do
            rdma system set netns shared 2>/dev/null && break; sleep 0.1; done' EXIT
        unshare -n "$FARCALL" doctor --format json || test $? -eq 1
    "#,
    ),
    row(
        "library",
        "the library's folder without libibverbs",
        Place::Anywhere,
        r#"
        private '
        file=$(ldconfig -p 2>/dev/null | sed -n "s/.*libibverbs.so.1.* => //p" | head -n 1)
        if [ -n "$file" ]; then
            libraries=$(readlink -f "$(dirname "$file")")
            mkdir "$DIR/all" "$DIR/some"
            mount --bind "$libraries" "$DIR/all"
            ln -s "$DIR"/all/* "$DIR/some/"
            rm "$DIR/some/libibverbs.so.1"
            mount --bind "$DIR/some" "$libraries"
        fi
        "$FARCALL" doctor --format json || test $? -eq 1'
    "#,
    ),
    row(
        "provider",
        "an empty folder over the providers",
        Place::Anywhere,
        r#"
        file=$(ldconfig -p 2>/dev/null | sed -n "s/.*libibverbs.so.1.* => //p" | head -n 1)
        test -n "$file" || exit 77
        private '
        mkdir "$DIR/none"
        for folder in /usr/lib/*-linux-gnu/libibverbs /etc/libibverbs.d; do
            test ! -d "$folder" || mount --bind "$DIR/none" "$folder"
        done
        "$FARCALL" doctor --format json || test $? -eq 1'
    "#,
    ),
    row(
        "device-node",
        "an empty folder over /dev/infiniband",
        Place::Anywhere,
        r#"
        private '
        mkdir "$DIR/none"
        test ! -d /dev/infiniband || mount --bind "$DIR/none" /dev/infiniband
        "$FARCALL" doctor --format json || test $? -eq 1'
    "#,
    ),
    row(
        "memlock",
        "ulimit -l 8192, without CAP_IPC_LOCK",
        Place::Anywhere,
        r#"
        ulimit -l 8192
        test "$(id -u)" -eq 0 || { doctor; exit; }
        setpriv --bounding-set=-ipc_lock --inh-caps=-ipc_lock "$FARCALL" doctor --format json ||
            test $? -eq 1
    "#,
    ),
    row(
        "ipc-lock",
        "another user than root, ulimit -l 8192",
        Place::Anywhere,
        r#"
        ulimit -l 8192
        test "$(id -u)" -eq 0 || { doctor; exit; }
        cp "$FARCALL" "$DIR/farcall"
        chmod 0755 "$DIR" "$DIR/farcall"
        setpriv --reuid=65534 --regid=65534 --clear-groups "$DIR/farcall" doctor --format json ||
            test $? -eq 1
    "#,
    ),
    row("open-files", "ulimit -n 1024", Place::Anywhere, "ulimit -n 1024\ndoctor"),
    row(
        "port-down",
        "a device on an interface that is down",
        Place::Devices,
        r#"
        soft_device 4500
        ip address add 10.9.9.1/32 dev d0
        doctor
    "#,
    ),
    row("no-gid", "--address 127.0.0.1", Place::Devices, "doctor --address 127.0.0.1"),
    row(
        "foreign-gid",
        "a device in another network namespace",
        Place::Devices,
        r#"
        ip netns add farcall-other
        trap 'rdma link delete rxe9; ip netns delete farcall-other' EXIT
        ip netns exec farcall-other sh -euc '
            ip link add d0 type dummy
            ip address add 10.9.9.1/32 dev d0
            ip link set d0 up
            rdma link add rxe9 type rxe netdev d0'
        until_gids ffff:0a09:0901
        doctor
    "#,
    ),
    row(
        "gid-index",
        "an address that is gone again",
        Place::Devices,
        r#"
        soft_device 4500
        ip link set d0 up
        ip address add 10.9.9.1/32 dev d0
        until_gids ffff:0a09:0901
        ip address add 10.9.9.2/32 dev d0
        until_gids ffff:0a09:0902
        ip address delete 10.9.9.1/32 dev d0
        for _ in $(seq 100); do
            cat $gids/[0-7] | grep -q ffff:0a09:0901 || break
            sleep 0.1
        done
        doctor
    "#,
    ),
    row(
        "nat",
        "unshare -n with 172.17.0.2",
        Place::Devices,
        r#"
        unshare -n sh -euc '
            ip link add eth0 type dummy
            ip address add 172.17.0.2/16 dev eth0
            ip link set eth0 up
            "$FARCALL" doctor --format json || test $? -eq 1'
    "#,
    ),
    row(
        "mtu",
        "a device on an interface of 1,500 bytes",
        Place::Devices,
        r#"
        soft_device 1500
        ip link set d0 up
        ip address add 10.9.9.1/32 dev d0
        until_gids ffff:0a09:0901
        doctor
    "#,
    ),
    row(
        "short-reads",
        "the release of Linux 6.12",
        Place::Devices,
        r#"
        private '
        echo 6.12.95+deb12-amd64 > "$DIR/release"
        case $(uname -r) in
            6.1.*) mount --bind "$DIR/release" /proc/sys/kernel/osrelease ;;
        esac
        "$FARCALL" doctor --format json || test $? -eq 1'
    "#,
    ),
    row(
        "udp4791",
        "a rule that drops UDP on its way in",
        Place::Devices,
        r#"
        ip rule add pref 0 iif v1 ipproto udp blackhole
        trap 'ip rule delete pref 0 iif v1 ipproto udp blackhole' EXIT
        doctor --peer "$PEER"
    "#,
    ),
];
