set -e
dev=$(ip -o -4 addr show to 10.64.0.2 | awk '{print $2}')
ip link add ifb0 type ifb
ip link set ifb0 up txqueuelen 1000
tc qdisc add dev $dev handle ffff: ingress
tc filter add dev $dev parent ffff: protocol all u32 match u32 0 0 action mirred egress redirect dev ifb0
tc -batch - <<END
qdisc add dev ifb0 root handle 1: htb
class add dev ifb0 parent 1: classid 1:10 htb rate 50000000bit ceil 50000000bit burst 2048 cburst 2048 quantum 65536
qdisc add dev ifb0 parent 1:10 handle 2010: pfifo limit 1000
class add dev ifb0 parent 1: classid 1:11 htb rate 50000000bit ceil 50000000bit burst 2048 cburst 2048 quantum 65536
qdisc add dev ifb0 parent 1:11 handle 2011: pfifo limit 1000
filter add dev ifb0 parent 1: protocol ip prio 1 handle 10: u32 divisor 256
filter add dev ifb0 parent 1: protocol ip prio 1 u32 ht 800:: match u32 0 0 hashkey mask 0x000000ff at 12 link 10:
filter add dev ifb0 parent 1: protocol ip prio 1 handle 11: u32 divisor 256
filter add dev ifb0 parent 1: protocol ip prio 1 u32 ht 11:d: match ip dst 10.64.0.13/32 flowid 1:10
filter add dev ifb0 parent 1: protocol ip prio 1 u32 ht 11:e: match ip dst 10.64.0.14/32 flowid 1:10
filter add dev ifb0 parent 1: protocol ip prio 1 u32 ht 10:b: match ip src 10.64.0.11/32 hashkey mask 0x000000ff at 16 link 11:
filter add dev ifb0 parent 1: protocol ip prio 1 u32 ht 10:c: match ip src 10.64.0.12/32 hashkey mask 0x000000ff at 16 link 11:
filter add dev ifb0 parent 1: protocol ip prio 1 handle 12: u32 divisor 256
filter add dev ifb0 parent 1: protocol ip prio 1 u32 ht 12:b: match ip dst 10.64.0.11/32 flowid 1:11
filter add dev ifb0 parent 1: protocol ip prio 1 u32 ht 12:c: match ip dst 10.64.0.12/32 flowid 1:11
filter add dev ifb0 parent 1: protocol ip prio 1 u32 ht 10:d: match ip src 10.64.0.13/32 hashkey mask 0x000000ff at 16 link 12:
filter add dev ifb0 parent 1: protocol ip prio 1 u32 ht 10:e: match ip src 10.64.0.14/32 hashkey mask 0x000000ff at 16 link 12:
qdisc add dev $dev root handle 1: htb
class add dev $dev parent 1: classid 1:10 htb rate 50000000bit ceil 50000000bit burst 2048 cburst 2048 quantum 65536
qdisc add dev $dev parent 1:10 handle 2010: pfifo limit 1000
class add dev $dev parent 1: classid 1:11 htb rate 50000000bit ceil 50000000bit burst 2048 cburst 2048 quantum 65536
qdisc add dev $dev parent 1:11 handle 2011: pfifo limit 1000
filter add dev $dev parent 1: protocol ip prio 1 handle 10: u32 divisor 256
filter add dev $dev parent 1: protocol ip prio 1 u32 ht 800:: match u32 0 0 hashkey mask 0x000000ff at 12 link 10:
filter add dev $dev parent 1: protocol ip prio 1 handle 11: u32 divisor 256
filter add dev $dev parent 1: protocol ip prio 1 u32 ht 11:b: match ip dst 10.64.0.11/32 flowid 1:10
filter add dev $dev parent 1: protocol ip prio 1 u32 ht 11:c: match ip dst 10.64.0.12/32 flowid 1:10
filter add dev $dev parent 1: protocol ip prio 1 u32 ht 10:d: match ip src 10.64.0.13/32 hashkey mask 0x000000ff at 16 link 11:
filter add dev $dev parent 1: protocol ip prio 1 u32 ht 10:e: match ip src 10.64.0.14/32 hashkey mask 0x000000ff at 16 link 11:
filter add dev $dev parent 1: protocol ip prio 1 handle 12: u32 divisor 256
filter add dev $dev parent 1: protocol ip prio 1 u32 ht 12:d: match ip dst 10.64.0.13/32 flowid 1:11
filter add dev $dev parent 1: protocol ip prio 1 u32 ht 12:e: match ip dst 10.64.0.14/32 flowid 1:11
filter add dev $dev parent 1: protocol ip prio 1 u32 ht 10:b: match ip src 10.64.0.11/32 hashkey mask 0x000000ff at 16 link 12:
filter add dev $dev parent 1: protocol ip prio 1 u32 ht 10:c: match ip src 10.64.0.12/32 hashkey mask 0x000000ff at 16 link 12:
END
echo device in
tc class show dev ifb0
echo device out
tc class show dev $dev
echo structure
tc qdisc show dev ifb0
tc filter show dev ifb0
tc filter show dev ifb0 ingress
tc qdisc show dev $dev
tc filter show dev $dev
tc filter show dev $dev ingress
