/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/base/digest.h"

/* http://www.isthe.com/chongo/tech/comp/fnv/ */
#define OFFSET_BASIS UINT64_C(0xcbf29ce484222325)
#define PRIME        UINT64_C(0x100000001b3)

uint64_t base_digest(const void *data, size_t n)
{
    const unsigned char *bytes = data;
    uint64_t digest = OFFSET_BASIS;
    for (size_t i = 0; i < n; i++)
        digest = (digest ^ bytes[i]) * PRIME;
    return digest;
}
