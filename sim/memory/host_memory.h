/* SPDX-License-Identifier: Apache-2.0
 * What the kernel says of memory: of the machine, of the control groups of this process, of the
 * process. */
#ifndef SIM_MEMORY_HOST_MEMORY_H
#define SIM_MEMORY_HOST_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    uint64_t total_bytes;     /* MemTotal, or the lowest limit of a control group */
    uint64_t available_bytes; /* MemAvailable, or what the limit leaves */
} sim_host_memory_t;

/* False: the kernel does not say. */
bool sim_host_memory(sim_host_memory_t *memory_p);

/* A field of /proc/self/status that is given in kB ("VmHWM", "RssAnon"), in bytes. */
bool sim_host_process(const char *field, uint64_t *bytes_p);

#endif
