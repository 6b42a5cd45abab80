# A second node of the cluster, for tests/kube/run to source: another containerd and kubelet on this machine, in namespaces of their own for
# processes, mounts and control groups, as nodes of kind have them.
#
# Owns: what that node consists of, below $state/second, and its control groups. Never touches: the first node. It ends with the cluster.
#
# No pod comes to it by itself, since it is tainted; the DaemonSet tolerates that.

start_second_node() {
    local group each
    second=$state/second
    configure "$second" "${bridge}b" "10.89.$((RANDOM % 200 + 20))" 10260 10258
    echo 'registerWithTaints: [{key: second, value: "true", effect: NoSchedule}]' >> "$second/kubelet.yaml"
    mkdir -p "$second/run-hugepilot" /run/hugepilot
    for group in /sys/fs/cgroup/*/; do
        mkdir "${group}second"
        for each in cpus mems; do [ ! -e "${group}cpuset.$each" ] || cat "${group}cpuset.$each" > "${group}second/cpuset.$each"; done
    done
    start second_node bash -c 'for each in /sys/fs/cgroup/*/second/cgroup.procs; do echo $$ > "$each"; done
        exec unshare --pid --fork --kill-child --mount --cgroup --mount-proc bash -c "$1" - "$2" "$3" "$4"' - \
        "$(declare -f run_second_node); run_second_node \"\$@\"" "$second" "$binaries/kubelet" "$KUBECONFIG"
    wait_for "the second node" 60 node_is_ready second
    for each in "$state"/image-*.tar "$state/hugepilot.tar"; do
        command ctr --address "$second/containerd.sock" --namespace k8s.io images import --snapshotter native "$each" > /dev/null
    done
}

# Within its namespaces, as their first process, which reaps what shims leave.
run_second_node() {
    local each
    for each in /sys/fs/cgroup/*/; do mount --bind "${each}second" "$each"; done
    mount --bind "$1/run-hugepilot" /run/hugepilot
    containerd --config "$1/containerd.toml" > "$1/containerd.log" 2>&1 &
    "$2" --config="$1/kubelet.yaml" --kubeconfig="$3" --root-dir="$1/kubelet" --hostname-override=second > "$1/kubelet.log" 2>&1 &
    wait
}
