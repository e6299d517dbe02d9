/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/base/infile.h"

#include "sim/base/xmem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FIRST_CHUNK = 64 << 10 };

/* Up to max_bytes + 1 bytes, so that a longer file shows. */
static base_status_t read_all(int fd, const char *path, size_t max_bytes, char **text_p,
                              size_t *length_p, base_err_t *err)
{
    size_t size = 0, n = 0;
    char *text = NULL;
    for (;;) {
        if (n + 1 >= size) {
            size = size == 0 ? FIRST_CHUNK : 2 * size;
            text = base_xrealloc(text, size, 1);
        }
        ssize_t got = read(fd, text + n, size - n - 1);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            int saved = errno;
            free(text);
            return base_err_set(err, BASE_ERR_INVAL, "%s: %s", path, strerror(saved));
        }
        if (got == 0)
            break;
        n += (size_t)got;
        if (n > max_bytes) {
            free(text);
            return base_err_set(err, BASE_ERR_INVAL, "%s: larger than %zu bytes", path, max_bytes);
        }
    }
    text[n] = '\0';
    *text_p = text;
    *length_p = n;
    return BASE_OK;
}

base_status_t base_infile_read(const char *path, size_t max_bytes, char **text_p, size_t *length_p,
                               base_err_t *err)
{
    if (strcmp(path, "-") == 0)
        return read_all(STDIN_FILENO, "standard input", max_bytes, text_p, length_p, err);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return base_err_set(err, BASE_ERR_INVAL, "%s: %s", path, strerror(errno));
    base_status_t status = read_all(fd, path, max_bytes, text_p, length_p, err);
    close(fd);
    return status;
}
