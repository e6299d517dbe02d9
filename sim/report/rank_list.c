/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/report/rank_list.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const char *sim_rank_list_format(const bool *is_in, uint32_t n, char *buf, size_t size)
{
    size_t used = 0;
    buf[0] = '\0';
    for (uint32_t i = 0; i < n; i++) {
        if (!is_in[i])
            continue;
        uint32_t first = i;
        while (i + 1 < n && is_in[i + 1])
            i++;
        char part[32];
        int length = i > first ? snprintf(part, sizeof(part), "%s%" PRIu32 "%s%" PRIu32,
                                          used > 0 ? "," : "", first, i > first + 1 ? "-" : ",", i)
                               : snprintf(part, sizeof(part), "%s%" PRIu32, used > 0 ? "," : "", i);
        bool is_last = true;
        for (uint32_t k = i + 1; k < n && is_last; k++)
            is_last = !is_in[k];
        if (used + (size_t)length + (is_last ? 1 : 4) > size) { /* room for ",.." */
            snprintf(buf + used, size - used, "%s", used > 0 ? ",.." : "..");
            break;
        }
        memcpy(buf + used, part, (size_t)length + 1);
        used += (size_t)length;
    }
    return buf;
}
