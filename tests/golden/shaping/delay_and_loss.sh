set -e
dev=$(ip -o -4 addr show to 10.64.0.11 | awk '{print $2}')
ip link set dev $dev gso_max_segs 1
ip link add ifb0 type ifb
ip link set ifb0 up txqueuelen 1000
tc qdisc add dev $dev handle ffff: ingress
tc filter add dev $dev parent ffff: protocol all u32 match u32 0 0 action mirred egress redirect dev ifb0
tc -batch - <<END
qdisc add dev $dev root handle 1: htb default 2
class add dev $dev parent 1: classid 1:1 htb rate 100000000bit ceil 100000000bit burst 2048 cburst 2048 quantum 65536
class add dev $dev parent 1:1 classid 1:2 htb rate 100000bit ceil 100000000bit burst 2048 cburst 32768 quantum 16384
class add dev $dev parent 1:1 classid 1:10c htb rate 100000bit ceil 100000000bit burst 2048 cburst 32768 quantum 16384
class add dev $dev parent 1:1 classid 1:10d htb rate 100000bit ceil 100000000bit burst 2048 cburst 32768 quantum 16384
class add dev $dev parent 1:1 classid 1:10e htb rate 100000bit ceil 100000000bit burst 2048 cburst 32768 quantum 16384
qdisc add dev $dev parent 1:2 handle 2002: pfifo limit 1000
qdisc add dev $dev parent 1:10c handle 210c: pfifo limit 1000
qdisc add dev $dev parent 1:10d handle 210d: pfifo limit 1000
qdisc add dev $dev parent 1:10e handle 210e: pfifo limit 1000
filter add dev $dev parent 1: protocol ip prio 1 handle 10: u32 divisor 256
filter add dev $dev parent 1: protocol ip prio 1 u32 ht 800:: match u32 0 0 hashkey mask 0x000000ff at 16 link 10:
filter add dev $dev parent 1: protocol ip prio 1 u32 ht 10:c: match ip dst 10.64.0.12/32 flowid 1:10c
filter add dev $dev parent 1: protocol ip prio 1 u32 ht 10:d: match ip dst 10.64.0.13/32 flowid 1:10d
filter add dev $dev parent 1: protocol ip prio 1 u32 ht 10:e: match ip dst 10.64.0.14/32 flowid 1:10e
qdisc add dev ifb0 root handle 1: htb default 1
class add dev ifb0 parent 1: classid 1:1 htb rate 100000000bit ceil 100000000bit burst 2048 cburst 2048 quantum 65536
qdisc add dev ifb0 parent 1:1 handle 2001: bfifo limit 524288
END
iptables-nft-restore --noflush <<END
*filter
:ensayo-apart - [0:0]
:ensayo-delay - [0:0]
-A INPUT -i $dev -j ensayo-apart
-A INPUT -i $dev -j ensayo-delay
-A ensayo-delay -s 10.64.0.12/32 -j NFQUEUE --queue-num 1
-A ensayo-delay -s 10.64.0.13/32 -j NFQUEUE --queue-num 2
-A ensayo-delay -s 10.64.0.14/32 -j NFQUEUE --queue-num 3
COMMIT
END
echo interface $dev
echo device up
tc class show dev $dev
echo device down
tc class show dev ifb0
iptables-nft -S
echo structure
tc qdisc show dev $dev
tc filter show dev $dev
tc filter show dev $dev ingress
tc qdisc show dev ifb0
tc filter show dev ifb0
tc filter show dev ifb0 ingress
