#!/bin/sh
# The first process of a node's namespaces. Given the home of the node, it lays out the mounts, says that they are
# ready, and reaps the orphans that shims leave behind until it is killed.
set -eu
home=$1

# As an init system has it: a volume may want mounts that appear on the node later. No mount leaves these namespaces.
mount --make-rshared /

# Programs write to fixed places below /etc and /var; what they write there stays in memory and ends with the node.
mkdir -p "$home/run/upper"
mount -t tmpfs -o mode=0700 upper "$home/run/upper"
for tree in etc var; do
    mkdir "$home/run/upper/$tree" "$home/run/upper/$tree.work"
    mount -t overlay -o "lowerdir=/$tree,upperdir=$home/run/upper/$tree,workdir=$home/run/upper/$tree.work" overlay "/$tree"
done
mount -t tmpfs -o mode=0755 run /run
mkdir -p /run/cdi /run/containerd /var/lib/kubelet /var/log/containers
mount --bind "$home/run/cdi" /run/cdi
mount --bind "$home/kubelet" /var/lib/kubelet

# No name of a node is looked up beyond this machine.
rm -f /etc/resolv.conf
: > /etc/resolv.conf

cd "$home/sysctl"
find . -type f | while read -r setting; do
    mount --bind "$setting" "/proc/sys/$setting"
done

cd /
: > "$home/run/machine-is-up"
# A shell reaps every child of its own in `wait`, also those it has inherited.
while :; do
    sleep 1000000 &
    wait
done
