/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/memory/host_memory.h"

#include "sim/base/units.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* "NAME:   1234 kB" in a file of such lines. */
static bool read_kb(const char *path, const char *field, uint64_t *bytes_p)
{
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return false;
    char line[256];
    size_t n = strlen(field);
    bool found = false;
    while (!found && fgets(line, sizeof(line), file) != NULL) {
        uint64_t kb;
        if (strncmp(line, field, n) == 0 && line[n] == ':' &&
            sscanf(line + n + 1, "%" SCNu64, &kb) == 1) {
            *bytes_p = kb * BASE_KIB;
            found = true;
        }
    }
    fclose(file);
    return found;
}

static bool read_number(const char *path, uint64_t *number_p)
{
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return false;
    bool found = fscanf(file, "%" SCNu64, number_p) == 1; /* "max" is none */
    fclose(file);
    return found;
}

/* The limit and use of one group, when it has a limit. */
static void apply_group(const char *group, const char *limit_name, const char *used_name,
                        sim_host_memory_t *memory)
{
    char path[1024];
    uint64_t limit, used = 0;
    snprintf(path, sizeof(path), "%s/%s", group, limit_name);
    if (!read_number(path, &limit) || limit >= memory->total_bytes)
        return;
    memory->total_bytes = limit;
    snprintf(path, sizeof(path), "%s/%s", group, used_name);
    if (!read_number(path, &used))
        used = 0;
    memory->available_bytes =
        base_u64_min(memory->available_bytes, limit > used ? limit - used : 0);
}

/* The group and all above it up to the root of the hierarchy. */
static void apply_groups(const char *root, char *group, const char *limit_name,
                         const char *used_name, sim_host_memory_t *memory)
{
    char path[768];
    for (;;) {
        snprintf(path, sizeof(path), "%s%s", root, group);
        apply_group(path, limit_name, used_name, memory);
        char *slash = strrchr(group, '/');
        if (slash == NULL)
            return;
        *slash = '\0';
    }
}

/* /proc/self/cgroup: "0::/PATH" of version 2, "N:...memory...:/PATH" of version 1. */
static void apply_all_groups(sim_host_memory_t *memory)
{
    FILE *file = fopen("/proc/self/cgroup", "r");
    if (file == NULL)
        return;
    char line[512];
    while (fgets(line, sizeof(line), file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        char *names = strchr(line, ':');
        char *group = names != NULL ? strchr(names + 1, ':') : NULL;
        if (group == NULL)
            continue;
        *group++ = '\0';
        if (names[1] == '\0')
            apply_groups("/sys/fs/cgroup", group, "memory.max", "memory.current", memory);
        else if (strstr(names, "memory") != NULL)
            apply_groups("/sys/fs/cgroup/memory", group, "memory.limit_in_bytes",
                         "memory.usage_in_bytes", memory);
    }
    fclose(file);
}

bool sim_host_memory(sim_host_memory_t *memory_p)
{
    sim_host_memory_t memory;
    if (!read_kb("/proc/meminfo", "MemTotal", &memory.total_bytes) ||
        !read_kb("/proc/meminfo", "MemAvailable", &memory.available_bytes))
        return false;
    apply_all_groups(&memory);
    *memory_p = memory;
    return true;
}

bool sim_host_process(const char *field, uint64_t *bytes_p)
{
    return read_kb("/proc/self/status", field, bytes_p);
}
