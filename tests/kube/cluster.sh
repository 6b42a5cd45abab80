# A real Kubernetes on this machine, for a script that is sourced into: `up` starts it, and it ends with the script.
#
# Owns: certificates, containerd, the control plane, kubelet, images, and that nothing of them is left. Never touches: what is tested on it.
#
# It needs $binaries (tests/kube/binaries). Everything is below one directory of its own and listens on addresses of this machine's loopback
# interface and of bridges of its own. It is ended by the ids of its processes. HUGEPILOT_KUBE_KEEP=1 leaves it running until Enter is pressed.

# Long enough to be told apart, short enough for an interface.
bridge=hpk$$
subnet=10.88.$((RANDOM % 200 + 20))
# The address at which every pod expects the API server; there is no proxy here that would lead from there to another.
api=10.96.0.1
started=()
say() { printf '%s %s\n' "$(date +%T)" "$*" >&2; }
kubectl() { "$binaries/kubectl" --request-timeout=20s "$@"; }
import() { ctr images import --snapshotter native "$1" > /dev/null; }
ctr() { command ctr --address "$state/containerd.sock" --namespace k8s.io "$@"; }

# Starts a service in the background, with its output in a file of its name.
start() {
    local name=$1
    shift
    "$@" > "$state/$name.log" 2>&1 &
    started+=($!)
}

stop() {
    kill "$1" 2> /dev/null || return 0
    for _ in $(seq 100); do kill -0 "$1" 2> /dev/null || return 0; sleep 0.1; done
    kill -9 "$1" 2> /dev/null || true
}

# What a shim started outlives containerd, and is known by the directory that it was started with.
shims() {
    local process
    for process in /proc/[0-9]*; do
        tr '\0' ' ' 2> /dev/null < "$process/cmdline" | grep -q "^[^ ]*containerd-shim.* -address $state/containerd.sock" && echo "${process#/proc/}"
    done
    return 0
}

end() {
    local status=$? each
    trap - EXIT
    if [ $status != 0 ]; then
        say "failed; logs:"
        for each in agent daemon; do kubectl -n hugepilot logs daemonset/hugepilot -c $each --tail=30 >&2 || true; done
        kubectl get pods -A -o wide >&2 || true
        kubectl get events -A --sort-by=.lastTimestamp 2> /dev/null | tail -n 25 >&2 || true
        tail -n 15 "$state"/second/*.log "$state"/second_node.log 2> /dev/null >&2 || true
        tail -n 15 "$state"/kubelet.log "$state"/containerd.log >&2 || true
    fi
    [ -z "${HUGEPILOT_KUBE_KEEP:-}" ] || { say "kept: KUBECONFIG=$KUBECONFIG; press Enter to end it"; read -r _; }
    # Pods first: then runc itself ends their processes and mounts.
    kubectl delete --all pods,daemonsets,deployments -A --grace-period=1 --timeout=30s > /dev/null 2>&1 || true
    # In the opposite order of their start.
    for ((each = ${#started[@]} - 1; each >= 0; each--)); do stop "${started[each]}"; done
    for each in $(shims); do
        kill -9 $(ps -o pid= --ppid "$each") 2> /dev/null || true
        kill -9 "$each" 2> /dev/null || true
    done
    awk -v below="$state/" 'index($5, below) == 1 { print $5 }' /proc/self/mountinfo | sort -r | while read -r each; do umount -l "$each" || true; done
    for each in "$bridge" "${bridge}b"; do ip link delete "$each" 2> /dev/null || true; done
    ip address delete "$api/32" dev lo 2> /dev/null || true
    # Groups of pods of this run only: each is empty by now.
    for each in /sys/fs/cgroup/kubepods /sys/fs/cgroup/*/kubepods /sys/fs/cgroup/*/"${bridge}b"; do remove_groups "$each"; done
    rm -rf --one-file-system "$state"
    exit $status
}

# Control groups that empty themselves within seconds.
remove_groups() {
    for _ in $(seq 50); do
        [ -d "$1" ] || return 0
        find "$1" -depth -type d -exec rmdir {} + 2> /dev/null || sleep 0.1
    done
}

certificates() {
    mkdir -p "$state/pki"
    cd "$state/pki"
    openssl genrsa -out sa.key 2048 2> /dev/null
    openssl rsa -in sa.key -pubout -out sa.pub 2> /dev/null
    openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.crt -subj /CN=ca -days 2 2> /dev/null
    printf 'subjectAltName=IP:127.0.0.1,IP:%s,DNS:localhost,DNS:kubernetes.default\n' "$api" > extensions
    local name subject
    while read -r name subject; do
        openssl req -newkey rsa:2048 -nodes -keyout "$name.key" -out "$name.csr" -subj "$subject" 2> /dev/null
        openssl x509 -req -in "$name.csr" -CA ca.crt -CAkey ca.key -CAcreateserial -out "$name.crt" -days 2 -extfile extensions 2> /dev/null
    done <<< $'api /CN=kube-apiserver\nadmin /O=system:masters/CN=admin'
    cd - > /dev/null
    cat > "$KUBECONFIG" <<EOF
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://$api:443", certificate-authority: $state/pki/ca.crt}}]
users: [{name: u, user: {client-certificate: $state/pki/admin.crt, client-key: $state/pki/admin.key}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
EOF
}

# What containerd and kubelet of one node read: configure DIRECTORY BRIDGE SUBNET PORT HEALTH_PORT
configure() {
    mkdir -p "$1/cni" "$1/kubelet" "$1/pod-logs"
    cat > "$1/cni/10-test.conflist" <<EOF
{"cniVersion": "0.4.0", "name": "hugepilot-test", "plugins": [
  {"type": "bridge", "bridge": "$2", "isGateway": true, "ipMasq": false,
   "ipam": {"type": "host-local", "dataDir": "$1/cni-data", "subnet": "$3.0/24", "routes": [{"dst": "0.0.0.0/0"}]}}]}
EOF
    # Without CAP_SYS_RESOURCE no process may be preferred over its parent when memory is short.
    cat > "$1/containerd.toml" <<EOF
version = 2
root = "$1/containerd"
state = "$1/containerd-state"
[grpc]
  address = "$1/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "docker.io/library/pause:test"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$1/cni"
EOF
    cat > "$1/kubelet.yaml" <<EOF
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: false}, webhook: {enabled: false}, x509: {clientCAFile: $state/pki/ca.crt}}
authorization: {mode: AlwaysAllow}
cgroupDriver: cgroupfs
failSwapOn: false
failCgroupV1: false
address: 127.0.0.1
port: $4
healthzBindAddress: 127.0.0.1
healthzPort: $5
podLogsDir: $1/pod-logs
containerRuntimeEndpoint: unix://$1/containerd.sock
evictionHard: {memory.available: 100Mi, nodefs.available: 1%, imagefs.available: 1%}
resolvConf: ""
EOF
}

start_api() {
    start apiserver "$binaries/kube-apiserver" --etcd-servers=http://127.0.0.1:12379 --secure-port=443 --bind-address=$api \
        --advertise-address=$api --service-cluster-ip-range=10.96.0.0/16 --client-ca-file="$state/pki/ca.crt" \
        --tls-cert-file="$state/pki/api.crt" --tls-private-key-file="$state/pki/api.key" --service-account-key-file="$state/pki/sa.pub" \
        --service-account-signing-key-file="$state/pki/sa.key" --service-account-issuer=https://kubernetes.default --authorization-mode=RBAC \
        --allow-privileged --kubelet-client-certificate="$state/pki/admin.crt" --kubelet-client-key="$state/pki/admin.key" \
        --endpoint-reconciler-type=none
    api_process=${started[-1]}
}

control_plane() {
    say "control plane"
    ip address add "$api/32" dev lo
    start etcd etcd --data-dir "$state/etcd" --listen-client-urls http://127.0.0.1:12379 --advertise-client-urls http://127.0.0.1:12379 \
        --listen-peer-urls http://127.0.0.1:12380 --initial-advertise-peer-urls http://127.0.0.1:12380 --initial-cluster default=http://127.0.0.1:12380
    start_api
    wait_for "API server" 60 kubectl get --raw /readyz
    start controllers "$binaries/kube-controller-manager" --kubeconfig="$KUBECONFIG" --leader-elect=false --bind-address=127.0.0.1 \
        --service-account-private-key-file="$state/pki/sa.key" --root-ca-file="$state/pki/ca.crt"
    start scheduler "$binaries/kube-scheduler" --kubeconfig="$KUBECONFIG" --leader-elect=false --bind-address=127.0.0.1
}

first_node() {
    configure "$state" "$bridge" "$subnet" 10250 10248
    start containerd containerd --config "$state/containerd.toml"
    wait_for "containerd" 30 ctr version
    start kubelet "$binaries/kubelet" --config="$state/kubelet.yaml" --kubeconfig="$KUBECONFIG" --root-dir="$state/kubelet" --hostname-override=localhost
    wait_for "node" 60 node_is_ready localhost
}

node_is_ready() { kubectl get node "$1" -o jsonpath='{.status.conditions[?(@.type=="Ready")].status}' | grep -q True; }

# Waits until a command succeeds; ends all after so many seconds.
wait_for() {
    local what=$1 seconds=$2 begun=$SECONDS
    shift 2
    until "$@" > "$state/waited" 2>&1; do
        if [ $((SECONDS - begun)) -ge "$seconds" ]; then
            say "no $what within $seconds s: $(tail -n 3 "$state/waited")"
            exit 1
        fi
        sleep 0.5
    done
    say "$what: after $((SECONDS - begun)) s"
}

# A container image of programs of this machine with the libraries that they need: image NAME PROGRAM.. -- COMMAND..
image() {
    local name=$1 root program library programs=()
    shift
    while [ "$1" != -- ]; do programs+=("$1"); shift; done
    shift
    root=$(mktemp -d "$state/image.XXXXXX")
    for program in "${programs[@]}"; do
        for library in "$program" $(ldd "$program" | grep -oE '/[^ ]+'); do install -D -m 755 "$(realpath "$library")" "$root$library"; done
    done
    mkdir -p "$root/tmp" "$root/etc" "$root/usr/lib"
    [ "$name" != servers ] || { cp -r "$(dirname "$(/usr/bin/python3 -c 'import os; print(os.__file__)')")" "$root/usr/lib/" && cp tests/kube/*.py "$root/"; }
    echo 'root:x:0:0::/:/bin/sh' > "$root/etc/passwd"
    tests/kube/image "$root" "$state/image-$name.tar" "docker.io/library/$name:test" "$@"
    import "$state/image-$name.tar"
    rm -rf "$root"
}

# Starts all of it, unless another is here.
up() {
    local each
    for each in /sys/fs/cgroup/kubepods /sys/fs/cgroup/memory/kubepods; do
        [ ! -d $each ] || { echo "$0: $each is there; another kubelet runs here, or left it" >&2; exit 1; }
    done
    [ -z "$(ip -oneline address show to $api)" ] || { echo "$0: $api is in use here; another cluster runs" >&2; exit 1; }
    state=$(mktemp -d /tmp/hugepilot-kube.XXXXXX)
    export KUBECONFIG=$state/admin.conf
    trap end EXIT
    certificates
    control_plane
    first_node
}
