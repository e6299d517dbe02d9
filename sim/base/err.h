/* SPDX-License-Identifier: Apache-2.0
 * Status codes and the text that goes with a failure. The first function that detects a failure
 * writes the text; callers only pass status and text up. */
#ifndef SIM_BASE_ERR_H
#define SIM_BASE_ERR_H

typedef enum {
    BASE_OK = 0,
    BASE_ERR_INVAL,       /* an argument or input is wrong */
    BASE_ERR_PARSE,       /* a file or text does not have the expected form */
    BASE_ERR_IO,          /* the operating system refused to read or write */
    BASE_ERR_OVERFLOW,    /* a size or count does not fit 64 bits */
    BASE_ERR_UNSUPPORTED, /* known, but not simulated */
    BASE_ERR_DEVICE_OOM,  /* the simulated device is full: an expected result */
    BASE_ERR_TIMEOUT,     /* a peer did not answer in time */
} base_status_t;

typedef struct {
    base_status_t status;
    char text[1024]; /* one line, no newline at the end */
} base_err_t;

/* Store status and text (cut to fit) in `err`, which may be NULL. Returns `status`. */
base_status_t base_err_set(base_err_t *err, base_status_t status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* The command's exit code for a status: 0 success, 2 wrong input, 3 device out of memory, 1 else.
 */
int base_err_exit_code(base_status_t status);

#endif
