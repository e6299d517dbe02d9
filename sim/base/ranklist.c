/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/base/ranklist.h"

#include "sim/base/units.h"
#include "sim/base/xmem.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_WORD = 32 };

static bool parse_rank(const char *word, uint32_t world_size, uint32_t *rank_p)
{
    uint64_t rank = world_size - 1;
    if (strcmp(word, "last") != 0 && (!base_u64_parse(word, &rank) || rank >= world_size))
        return false;
    *rank_p = (uint32_t)rank;
    return true;
}

/* "4", "last", "4-7" or "all"; marks what it names. */
static bool mark(const char *part, size_t length, uint32_t world_size, bool *wanted)
{
    char word[MAX_WORD];
    if (length >= sizeof(word))
        return false;
    snprintf(word, sizeof(word), "%.*s", (int)length, part);
    uint32_t first = 0, last = world_size - 1;
    if (strcmp(word, "all") != 0) {
        char *dash = strchr(word, '-');
        if (dash != NULL)
            *dash = '\0';
        if (!parse_rank(word, world_size, &first) ||
            !parse_rank(dash != NULL ? dash + 1 : word, world_size, &last) || last < first)
            return false;
    }
    for (uint32_t r = first; r <= last; r++)
        wanted[r] = true;
    return true;
}

base_status_t base_ranklist_parse(const char *text, uint32_t world_size, base_ranklist_t *list_p,
                                  base_err_t *err)
{
    bool *wanted = base_xcalloc(world_size, sizeof(*wanted));
    const char *part = text;
    for (;;) {
        size_t length = strcspn(part, ",");
        if (!mark(part, length, world_size, wanted)) {
            free(wanted);
            return base_err_set(err, BASE_ERR_INVAL,
                                "'%.*s' is no choice of ranks 0 to %" PRIu32
                                "; write a list such as 0,4-7,last",
                                length < MAX_WORD ? (int)length : MAX_WORD, part, world_size - 1);
        }
        if (part[length] == '\0')
            break;
        part += length + 1;
    }
    base_ranklist_t list = { .ranks = base_xcalloc(world_size, sizeof(uint32_t)) };
    for (uint32_t r = 0; r < world_size; r++) {
        if (wanted[r])
            list.ranks[list.n++] = r;
    }
    free(wanted);
    *list_p = list;
    return BASE_OK;
}

void base_ranklist_fini(base_ranklist_t *list)
{
    free(list->ranks);
    *list = (base_ranklist_t){ 0 };
}
