set -e
dev=$(ip -o -4 addr show to 10.64.0.11 | awk '{print $2}')
ip link set dev $dev gso_max_segs 11
tc -batch - <<END
qdisc add dev $dev root handle 1: htb
class add dev $dev parent 1: classid 1:10c htb rate 20000000bit ceil 20000000bit burst 2048 cburst 2048 quantum 65536
qdisc add dev $dev parent 1:10c handle 210c: bfifo limit 524288
filter add dev $dev parent 1: protocol ip prio 1 handle 10: u32 divisor 256
filter add dev $dev parent 1: protocol ip prio 1 u32 ht 800:: match u32 0 0 hashkey mask 0x000000ff at 16 link 10:
filter add dev $dev parent 1: protocol ip prio 1 u32 ht 10:c: match ip dst 10.64.0.12/32 flowid 1:10c
END
iptables-nft-restore --noflush <<END
*filter
:ensayo-apart - [0:0]
:ensayo-delay - [0:0]
-A INPUT -i $dev -j ensayo-apart
-A INPUT -i $dev -j ensayo-delay
COMMIT
END
echo interface $dev
echo device up
tc class show dev $dev
iptables-nft -S
echo structure
tc qdisc show dev $dev
tc filter show dev $dev
tc filter show dev $dev ingress
