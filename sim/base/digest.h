/* SPDX-License-Identifier: Apache-2.0
 * A number for a text, to see whether two are alike without sending them. */
#ifndef SIM_BASE_DIGEST_H
#define SIM_BASE_DIGEST_H

#include <stddef.h>
#include <stdint.h>

/* FNV-1a of 64 bits: against mistakes, not against an enemy. */
uint64_t base_digest(const void *data, size_t n);

#endif
