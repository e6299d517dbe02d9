/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/base/outfile.h"

#include "sim/base/xmem.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct base_outfile {
    FILE *stream;
    char *path;      /* as given, for messages */
    char *place;     /* where the file goes, symbolic links followed */
    char *temporary; /* NULL: written in place */
};

static base_status_t fail(base_err_t *err, const char *path, int code)
{
    return base_err_set(err, BASE_ERR_IO, "%s: cannot be written: %s", path, strerror(code));
}

static void destroy(base_outfile_t *out)
{
    free(out->path);
    free(out->place);
    free(out->temporary);
    free(out);
}

static mode_t usual_mode(void)
{
    mode_t mask = umask(0);
    umask(mask);
    return 0666 & ~mask;
}

/* A new file beside out->place. */
static int open_temporary(base_outfile_t *out, mode_t mode)
{
    const char *slash = strrchr(out->place, '/');
    int folder = slash == NULL ? 0 : (int)(slash - out->place + 1);
    out->temporary = base_xasprintf("%.*s.%s.XXXXXX", folder, out->place, out->place + folder);
    int fd = mkstemp(out->temporary);
    if (fd < 0) {
        free(out->temporary);
        out->temporary = NULL;
        return -1;
    }
    if (fchmod(fd, mode) != 0 || (out->stream = fdopen(fd, "w")) == NULL) {
        int saved = errno;
        close(fd);
        unlink(out->temporary);
        errno = saved;
        return -1;
    }
    return 0;
}

base_status_t base_outfile_open(const char *path, base_outfile_t **out_p, base_err_t *err)
{
    base_outfile_t *out = base_xcalloc(1, sizeof(*out));
    out->path = base_xstrdup(strcmp(path, "-") == 0 ? "standard output" : path);
    struct stat st;
    bool exists = stat(path, &st) == 0;
    if (strcmp(path, "-") == 0) {
        out->stream = stdout;
    } else if (exists && !S_ISREG(st.st_mode)) {
        out->stream = fopen(path, "w");
    } else {
        char *real = exists ? realpath(path, NULL) : NULL;
        out->place = real != NULL ? real : base_xstrdup(path);
        if (!exists || access(out->place, W_OK) == 0)
            open_temporary(out, exists ? st.st_mode & 07777 : usual_mode());
    }
    if (out->stream == NULL) {
        base_status_t status = fail(err, path, errno);
        destroy(out);
        return status;
    }
    *out_p = out;
    return BASE_OK;
}

FILE *base_outfile_stream(base_outfile_t *out)
{
    return out->stream;
}

base_status_t base_outfile_commit(base_outfile_t *out, base_err_t *err)
{
    bool bad = ferror(out->stream) != 0;
    errno = 0;
    if (bad) { /* which error it was is lost; writing once more meets it again */
        clearerr(out->stream);
        if ((putc('\n', out->stream) != EOF && fflush(out->stream) == 0) || errno == 0)
            errno = EIO;
    }
    bad = fflush(out->stream) != 0 || bad;
    bad = (out->temporary != NULL && fsync(fileno(out->stream)) != 0) || bad;
    int code = errno;
    if (out->stream != stdout && fclose(out->stream) != 0 && !bad) {
        bad = true;
        code = errno;
    }
    if (!bad && out->temporary != NULL && rename(out->temporary, out->place) != 0) {
        bad = true;
        code = errno;
    }
    base_status_t status = bad ? fail(err, out->path, code) : BASE_OK;
    if (bad && out->temporary != NULL)
        unlink(out->temporary);
    destroy(out);
    return status;
}

void base_outfile_discard(base_outfile_t *out)
{
    if (out == NULL)
        return;
    if (out->stream != stdout)
        fclose(out->stream);
    if (out->temporary != NULL)
        unlink(out->temporary);
    destroy(out);
}
