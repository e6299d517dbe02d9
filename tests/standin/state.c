/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/standin/standin.h"

#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MAX_PROCESSES = 64, MAX_MEETINGS = 1 << 14, STRICT_EXIT = 86 };

/* What processes share; zeroed at first. */
typedef struct {
    uint64_t used[STANDIN_MAX_DEVICES];
    uint64_t highest[STANDIN_MAX_DEVICES];
    uint64_t by_process[MAX_PROCESSES][STANDIN_MAX_DEVICES];
    uint32_t pids[MAX_PROCESSES];
    uint32_t n_processes;
    uint64_t meetings[MAX_MEETINGS]; /* numbers; a hash table */
    uint32_t n_came[MAX_MEETINGS];
} shared_t;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static shared_t own_memory, *shared;
static uint32_t place; /* of this process in by_process */
static standin_thing_t *things;
static size_t n_things, things_cap;
static uint64_t next_address = UINT64_C(0x7f0000000000);
static uint64_t n_calls, n_named_calls, n_misuses;
static bool has_context[STANDIN_MAX_DEVICES];
static int current;
static char first_misuse[256], counted_name[64]; /* of n_named_calls */

static const char *const kind_names[] = {
    "cudaMalloc", "reservation", "handle", "mapping", "stream", "communicator", "nvmlInit",
};

static _Noreturn void die(const char *what)
{
    fprintf(stderr, "stand-in: %s\n", what);
    _exit(STRICT_EXIT);
}

uint64_t standin_setting(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    if (text == NULL || *text == '\0')
        return otherwise;
    char *end;
    uint64_t value = strtoull(text, &end, 0);
    if (*end != '\0')
        die(name);
    return value;
}

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("STANDIN_SHARED");
    shared = &own_memory;
    if (path != NULL && *path != '\0') {
        int fd = open(path, O_RDWR | O_CREAT, 0600);
        if (fd < 0 || ftruncate(fd, sizeof(*shared)) != 0)
            die(path);
        shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (shared == MAP_FAILED)
            die(path);
        close(fd);
    }
    place = __atomic_fetch_add(&shared->n_processes, 1, __ATOMIC_SEQ_CST);
    if (place >= MAX_PROCESSES)
        die("too many processes");
    shared->pids[place] = (uint32_t)getpid();
}

static void write_report(const char *path, size_t n_leaks, const char *leaks)
{
    FILE *file = fopen(path, "a");
    if (file == NULL)
        die(path);
    uint64_t highest = 0;
    for (int d = 0; d < STANDIN_MAX_DEVICES; d++)
        if (shared->highest[d] > highest)
            highest = shared->highest[d];
    fprintf(file, "calls=%" PRIu64 " highest=%" PRIu64 " leaks=%zu%s misuses=%" PRIu64 " %s\n",
            n_calls, highest, n_leaks, leaks, n_misuses, first_misuse);
    fclose(file);
}

__attribute__((destructor)) static void end(void)
{
    size_t n[STANDIN_N_KINDS] = { 0 };
    char leaks[256] = "";
    for (size_t i = 0; i < n_things; i++)
        n[things[i].kind]++;
    for (int k = 0; k < STANDIN_N_KINDS; k++)
        if (n[k] > 0)
            snprintf(leaks + strlen(leaks), sizeof(leaks) - strlen(leaks), " %s:%zu", kind_names[k],
                     n[k]);
    for (int d = 0; d < STANDIN_MAX_DEVICES; d++) /* as a process that ends gives all back */
        __atomic_fetch_sub(&shared->used[d], shared->by_process[place][d], __ATOMIC_SEQ_CST);
    shared->pids[place] = 0;
    const char *path = getenv("STANDIN_REPORT");
    if (path != NULL && *path != '\0')
        write_report(path, n_things, leaks);
    bool is_bad = n_things > 0 || n_misuses > 0;
    if (is_bad)
        fprintf(stderr, "stand-in: leaked%s; misused %" PRIu64 " times %s\n", leaks, n_misuses,
                first_misuse);
    free(things);
    things = NULL;
    if (is_bad && getenv("STANDIN_LENIENT") == NULL)
        _exit(STRICT_EXIT);
}

uint64_t standin_n_calls(void)
{
    return n_calls;
}

uint64_t standin_n_alive(void)
{
    return n_things;
}

uint64_t standin_n_misuses(void)
{
    return n_misuses;
}

void standin_misuse(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (n_misuses++ == 0)
        vsnprintf(first_misuse, sizeof(first_misuse), format, args);
    va_end(args);
}

static bool is_this_rank(void)
{
    const char *wanted = getenv("STANDIN_FAIL_RANK"), *mine = getenv("OMPI_COMM_WORLD_RANK");
    return wanted == NULL || *wanted == '\0' || (mine != NULL && strcmp(wanted, mine) == 0);
}

int standin_enter(const char *call)
{
    const char *name = getenv("STANDIN_FAIL_CALL");
    pthread_mutex_lock(&lock);
    uint64_t n = ++n_calls;
    if (name != NULL && *name != '\0') {
        if (strcmp(name, counted_name) != 0) {
            snprintf(counted_name, sizeof(counted_name), "%s", name);
            n_named_calls = 0;
        }
        n = strcmp(name, call) == 0 ? ++n_named_calls : 0;
    }
    pthread_mutex_unlock(&lock);
    uint64_t first = standin_setting("STANDIN_FAIL_AT", 0);
    if (n == 0 || first == 0 || n < first || n - first >= standin_setting("STANDIN_FAIL_FOR", 1) ||
        !is_this_rank())
        return 0;
    return (int)standin_setting("STANDIN_FAIL_CODE", STANDIN_UNKNOWN);
}

/* ---- devices ---- */

static int n_physical(void)
{
    uint64_t n = standin_setting("STANDIN_DEVICES", 1);
    return n < STANDIN_MAX_DEVICES ? (int)n : STANDIN_MAX_DEVICES;
}

/* CUDA stops at the first number of the list that is no device. */
int standin_physical(int device)
{
    const char *at = getenv("CUDA_VISIBLE_DEVICES");
    if (at == NULL)
        return device >= 0 && device < n_physical() ? device : -1;
    for (int i = 0;; i++) {
        char *stop;
        long number = strtol(at, &stop, 10);
        if (stop == at || number < 0 || number >= n_physical())
            return -1;
        if (i == device)
            return (int)number;
        if (*stop != ',')
            return -1;
        at = stop + 1;
    }
}

int standin_n_devices(void)
{
    int n = 0;
    while (n < STANDIN_MAX_DEVICES && standin_physical(n) >= 0)
        n++;
    return n;
}

int standin_current(void)
{
    int physical = standin_physical(current);
    if (physical >= 0 && !has_context[physical] &&
        standin_charge(physical, standin_setting("STANDIN_CONTEXT", UINT64_C(256) << 20)))
        has_context[physical] = true;
    return physical >= 0 && has_context[physical] ? physical : -1;
}

bool standin_set_current(int device)
{
    if (standin_physical(device) < 0)
        return false;
    current = device;
    return standin_current() >= 0;
}

uint64_t standin_capacity(void)
{
    return standin_setting("STANDIN_CAPACITY", UINT64_C(64) << 30);
}

uint64_t standin_used(int physical)
{
    return __atomic_load_n(&shared->used[physical], __ATOMIC_SEQ_CST) +
           standin_setting("STANDIN_BUSY", 0);
}

uint64_t standin_used_by(int physical, unsigned which, unsigned *pid_p)
{
    *pid_p = which < MAX_PROCESSES ? shared->pids[which] : 0;
    return *pid_p != 0 ? shared->by_process[which][physical] : 0;
}

bool standin_charge(int physical, uint64_t bytes)
{
    uint64_t used = __atomic_add_fetch(&shared->used[physical], bytes, __ATOMIC_SEQ_CST);
    if (used + standin_setting("STANDIN_BUSY", 0) > standin_capacity()) {
        __atomic_fetch_sub(&shared->used[physical], bytes, __ATOMIC_SEQ_CST);
        return false;
    }
    uint64_t highest = __atomic_load_n(&shared->highest[physical], __ATOMIC_SEQ_CST);
    while (used > highest &&
           !__atomic_compare_exchange_n(&shared->highest[physical], &highest, used, false,
                                        __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        ;
    __atomic_add_fetch(&shared->by_process[place][physical], bytes, __ATOMIC_SEQ_CST);
    return true;
}

void standin_discharge(int physical, uint64_t bytes)
{
    __atomic_fetch_sub(&shared->used[physical], bytes, __ATOMIC_SEQ_CST);
    __atomic_fetch_sub(&shared->by_process[place][physical], bytes, __ATOMIC_SEQ_CST);
}

/* ---- meetings ---- */

static uint32_t slot_of(uint64_t meeting)
{
    uint32_t slot = (uint32_t)(meeting * UINT64_C(0x9e3779b97f4a7c15) >> 50);
    for (uint32_t i = 0; i < MAX_MEETINGS; i++, slot = (slot + 1) % MAX_MEETINGS) {
        uint64_t free_slot = 0;
        if (__atomic_compare_exchange_n(&shared->meetings[slot], &free_slot, meeting, false,
                                        __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST) ||
            free_slot == meeting)
            return slot;
    }
    die("too many meetings");
}

void standin_meet(uint64_t meeting)
{
    __atomic_add_fetch(&shared->n_came[slot_of(meeting)], 1, __ATOMIC_SEQ_CST);
}

bool standin_have_met(uint64_t meeting, uint64_t n)
{
    return shared == &own_memory || meeting == 0 ||
           __atomic_load_n(&shared->n_came[slot_of(meeting)], __ATOMIC_SEQ_CST) >= n;
}

bool standin_has_met(uint64_t stream)
{
    const standin_thing_t *thing = standin_find(STANDIN_STREAM, stream);
    return thing == NULL || standin_have_met(thing->other, thing->bytes);
}

/* ---- what is alive ---- */

standin_thing_t *standin_add(standin_thing_t thing)
{
    if (n_things == things_cap) {
        things_cap = things_cap == 0 ? 256 : things_cap * 2;
        things = realloc(things, things_cap * sizeof(*things));
        if (things == NULL)
            die("no memory");
    }
    things[n_things] = thing;
    return &things[n_things++];
}

standin_thing_t *standin_find(standin_kind_t kind, uint64_t address)
{
    for (size_t i = 0; i < n_things; i++)
        if (things[i].kind == kind && things[i].address == address)
            return &things[i];
    return NULL;
}

standin_thing_t *standin_around(standin_kind_t kind, uint64_t address)
{
    for (size_t i = 0; i < n_things; i++)
        if (things[i].kind == kind && address >= things[i].address &&
            address - things[i].address < things[i].bytes)
            return &things[i];
    return NULL;
}

void standin_remove(standin_thing_t *thing)
{
    *thing = things[--n_things];
}

uint64_t standin_new_address(uint64_t bytes)
{
    uint64_t address = next_address;
    next_address += (bytes + (UINT64_C(4) << 20)) & ~((UINT64_C(2) << 20) - 1);
    return address;
}

bool standin_is_accessible(uint64_t address, uint64_t bytes)
{
    uint64_t end = address + bytes;
    while (address < end) {
        const standin_thing_t *thing = standin_around(STANDIN_MALLOC, address);
        if (thing == NULL)
            thing = standin_around(STANDIN_MAPPING, address);
        if (thing == NULL || (thing->kind == STANDIN_MAPPING && !thing->is_accessible))
            return false;
        address = thing->address + thing->bytes;
    }
    return true;
}
