# A second node of the cluster, for tests/kube/run to source: another containerd and kubelet on this machine, in namespaces of their own for
# processes, mounts and control groups, as nodes of kind have them.
#
# Owns: what that node consists of, below $state/second, and its control groups. Never touches: the first node. It ends with the cluster.
#
# No pod comes to it by itself, since it is tainted; the DaemonSet tolerates that.

# Empty until there is one.
second=

start_second_node() {
    local group each
    second=$state/second second_name=${bridge}b
    configure "$second" "$second_name" "10.89.$((RANDOM % 200 + 20))" 10260 10258
    echo 'registerWithTaints: [{key: second, value: "true", effect: NoSchedule}]' >> "$second/kubelet.yaml"
    mkdir -p "$second/run-hugepilot" /run/hugepilot
    for group in /sys/fs/cgroup/*; do
        # `cpu` may be a link to `cpu,cpuacct`.
        mkdir -p "$group/$second_name"
        for each in cpus mems; do [ ! -e "$group/cpuset.$each" ] || cat "$group/cpuset.$each" > "$group/$second_name/cpuset.$each"; done
    done
    start second_node bash -euc 'for each in /sys/fs/cgroup/*/"$1"/cgroup.procs; do echo $$ > "$each"; done
        exec unshare --pid --fork --kill-child --mount --cgroup --mount-proc bash -euc "$2" - "$1" "$3" "$4" "$5"' - "$second_name" \
        "$(declare -f run_second_node); run_second_node \"\$@\"" "$second" "$binaries/kubelet" "$KUBECONFIG"
    wait_for "the second node" 60 node_is_ready second
    for each in "$state"/image-*.tar "$state/hugepilot.tar"; do
        command ctr --address "$second/containerd.sock" --namespace k8s.io images import --snapshotter native "$each" > /dev/null
    done
}

# Within its namespaces, as their first process, which reaps what shims leave: run_second_node GROUP DIRECTORY KUBELET KUBECONFIG
run_second_node() {
    local each
    for each in /sys/fs/cgroup/*; do [ -L "$each" ] || mount --bind "$each/$1" "$each"; done
    mount --bind "$2/run-hugepilot" /run/hugepilot
    containerd --config "$2/containerd.toml" > "$2/containerd.log" 2>&1 &
    "$3" --config="$2/kubelet.yaml" --kubeconfig="$4" --root-dir="$2/kubelet" --hostname-override=second > "$2/kubelet.log" 2>&1 &
    wait
}
