/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/base/err.h"

#include <stdarg.h>
#include <stdio.h>

base_status_t base_err_set(base_err_t *err, base_status_t status, const char *fmt, ...)
{
    if (err == NULL)
        return status;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(err->text, sizeof(err->text), fmt, ap);
    va_end(ap);
    err->status = status;
    return status;
}

int base_err_exit_code(base_status_t status)
{
    switch (status) {
    case BASE_OK:
        return 0;
    case BASE_ERR_INVAL:
    case BASE_ERR_PARSE:
    case BASE_ERR_OVERFLOW:
    case BASE_ERR_UNSUPPORTED:
        return 2;
    case BASE_ERR_DEVICE_OOM:
        return 3;
    case BASE_ERR_IO:
    case BASE_ERR_TIMEOUT:
        return 1;
    }
    return 1;
}
