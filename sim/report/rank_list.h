/* SPDX-License-Identifier: Apache-2.0
 * Sets of ranks as text: "0-3,8,10-11". */
#ifndef SIM_REPORT_RANK_LIST_H
#define SIM_REPORT_RANK_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Write the members of is_in[0 .. n) into `buf` (room for size > 4 bytes), cut with ".." when they
 * do not fit. Returns `buf`. */
const char *sim_rank_list_format(const bool *is_in, uint32_t n, char *buf, size_t size);

#endif
