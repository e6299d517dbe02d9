/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "topology/gpu.h"

#include <ctype.h>
#include <string.h>

/* Compare up to the end or a blank, without case, '_' and '-'. */
static bool same_name(const char *a, const char *b)
{
    for (;;) {
        a += strspn(a, "-_");
        b += strspn(b, "-_");
        bool a_ends = *a == '\0' || *a == ' ', b_ends = *b == '\0' || *b == ' ';
        if (a_ends || b_ends)
            return a_ends && b_ends;
        if (tolower((unsigned char)*a++) != tolower((unsigned char)*b++))
            return false;
    }
}

static bool is_called(const topo_gpu_t *gpu, const char *name)
{
    if (same_name(gpu->name, name))
        return true;
    for (const char *s = gpu->aliases; *s != '\0'; s += strspn(s, " ")) {
        if (same_name(s, name))
            return true;
        s += strcspn(s, " ");
    }
    return false;
}

const topo_gpu_t *topo_gpu_find(const char *name)
{
    size_t n;
    const topo_gpu_t *table = topo_gpu_table(&n);
    for (size_t i = 0; i < n; i++) {
        if (is_called(&table[i], name))
            return &table[i];
    }
    return NULL;
}
