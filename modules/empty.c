/* SPDX-License-Identifier: MIT */
/*
 * The least that a module can be: every packet goes on. A start for one's own;
 * tutti bench module measures by it what the mechanism itself costs.
 */
#include <tutti/mdo_module.h>

MDO_HANDLER("mdo/packet") int empty(const struct mdo_packet *packet)
{
	return MDO_PASS;
}
