#!/usr/bin/env bash
# real_node.sh DIRECTORY LABELS: runs containerd and a kubelet, in the namespaces that real_node.py made for it.
umask 022
cd "$1" || exit 1
mount --make-rprivate /
mkdir -p /run/containerd /var/lib/cni
mount --bind node/run /run/containerd
mount --bind node/cni-state /var/lib/cni
# The kubelet writes to /var/log/pods, whatever its own directory is.
mount --bind node/logs /var/log
# The kubelet wants these values. It reads them here, and they are not set for the whole machine.
for pair in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 \
    kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
    file=node/sysctl/$(basename "${pair%=*}")
    echo "${pair#*=}" >"$file"
    mount --bind "$file" "/proc/sys/${pair%=*}"
done
containerd --config etc/containerd.toml &
until [[ -S node/containerd.sock ]]; do sleep 0.1; done
until ctr -a node/containerd.sock -n k8s.io images import node/pause.tar; do sleep 0.2; done
# A kubelet ends itself if the API server does not answer when it starts.
while :; do
    kubelet --config=etc/kubelet.json --kubeconfig=etc/kubelet.kubeconfig --root-dir="$1/node/root" \
        --hostname-override=127.0.0.1 --container-runtime=remote --node-labels="$2" \
        --container-runtime-endpoint="unix://$1/node/containerd.sock"
    sleep 1
done
