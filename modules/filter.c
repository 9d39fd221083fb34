/* SPDX-License-Identifier: MIT */
/*
 * Filter: packets are judged where they pass, so that what nobody wants does
 * not travel further. Rules are looked at in their order; the first that holds
 * decides, and a packet for which none does goes on.
 *
 * A rule takes 1 to 8 bytes of the payload from an offset, lowest byte first,
 * as a number without a sign, and of it what the mask has; it holds when that
 * compares with the rule's value as the rule says. It does not hold for a packet
 * that has no such bytes.
 *
 * Maps:
 *	rules	0 to 15 -> struct rule; the host sets it. op 0, as at first: none.
 *	held	0 to 15 -> packets for which the rule held
 */
#include <tutti/mdo_module.h>

enum { RULES = 16 };
enum op { OFF, EQUAL, NOT_EQUAL, LESS, MORE };

struct rule {
	__u32 offset, bytes;
	__u32 op;      /* enum op */
	__u32 verdict; /* MDO_DROP, MDO_PASS */
	__u64 mask, value;
};

MDO_MAP(rules, MDO_ARRAY, __u32, struct rule, RULES);
MDO_MAP(held, MDO_ARRAY, __u32, __u64, RULES);

/* Does it hold for the number that the packet has? */
static int compares(const struct rule *rule, __u64 number)
{
	number &= rule->mask;
	switch (rule->op) {
	case EQUAL: return number == rule->value;
	case NOT_EQUAL: return number != rule->value;
	case LESS: return number < rule->value;
	case MORE: return number > rule->value;
	default: return 0;
	}
}

static int holds(const struct rule *rule, const struct mdo_packet *packet)
{
	const unsigned char *data = mdo_data(packet);
	__u64 number = 0;

	if (rule->op == OFF || rule->bytes - 1 > 7 || rule->bytes > packet->bytes ||
	    rule->offset > packet->bytes - rule->bytes)
		return 0;
	for (__u32 i = 0; i < rule->bytes; i++)
		number |= (__u64)data[rule->offset + i] << 8 * i;
	return compares(rule, number);
}

MDO_HANDLER("mdo/packet") int filter(const struct mdo_packet *packet)
{
	for (__u32 i = 0; i < RULES; i++) {
		struct rule *rule = mdo_map_find(&rules, &i);
		__u64 *count;

		if (!rule || !holds(rule, packet))
			continue;
		count = mdo_map_find(&held, &i);
		if (count)
			++*count;
		return rule->verdict == MDO_DROP ? MDO_DROP : MDO_PASS;
	}
	return MDO_PASS;
}
