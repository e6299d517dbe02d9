/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/base/infile.h"
#include "sim/base/outfile.h"
#include "sim/base/ranklist.h"
#include "sim/base/xmem.h"
#include "tests/cutap.h"

#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "/tmp/mbsim-files.XXXXXX";
static char *path; /* a file in it */

static int make_folder(void)
{
    if (mkdtemp(folder) == NULL)
        return 1;
    path = base_xasprintf("%s/out.json", folder);
    return 0;
}

static int remove_folder(void)
{
    unlink(path);
    free(path);
    return rmdir(folder);
}

static size_t files_in_folder(void)
{
    size_t n = 0;
    DIR *dir = opendir(folder);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
        n += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    closedir(dir);
    return n;
}

static base_status_t write_file(const char *where, const char *text, base_err_t *err)
{
    base_outfile_t *out;
    base_status_t status = base_outfile_open(where, &out, err);
    if (status != BASE_OK)
        return status;
    fputs(text, base_outfile_stream(out));
    return base_outfile_commit(out, err);
}

static void holds(const char *text)
{
    char *read;
    size_t length;
    CU_ASSERT_EQUAL_FATAL(base_infile_read(path, 1000, &read, &length, NULL), BASE_OK);
    CU_ASSERT_STRING_EQUAL(read, text);
    CU_ASSERT_EQUAL(length, strlen(text));
    free(read);
}

static void a_file_appears_when_it_is_complete(void)
{
    base_outfile_t *out;
    CU_ASSERT_EQUAL_FATAL(base_outfile_open(path, &out, NULL), BASE_OK);
    fputs("half", base_outfile_stream(out));
    CU_ASSERT_NOT_EQUAL(access(path, F_OK), 0);
    CU_ASSERT_EQUAL(base_outfile_commit(out, NULL), BASE_OK);
    holds("half");
    CU_ASSERT_EQUAL(files_in_folder(), 1);
}

static void a_discarded_file_leaves_the_old_one(void)
{
    base_outfile_t *out;
    CU_ASSERT_EQUAL_FATAL(write_file(path, "old", NULL), BASE_OK);
    CU_ASSERT_EQUAL_FATAL(base_outfile_open(path, &out, NULL), BASE_OK);
    fputs("new", base_outfile_stream(out));
    base_outfile_discard(out);
    base_outfile_discard(NULL);
    holds("old");
    CU_ASSERT_EQUAL(files_in_folder(), 1);
}

static void a_full_disk_leaves_the_old_file(void)
{
    base_err_t err;
    CU_ASSERT_EQUAL_FATAL(write_file(path, "old", NULL), BASE_OK);
    struct rlimit before, none = { 0, 0 };
    getrlimit(RLIMIT_FSIZE, &before);
    none.rlim_max = before.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &none);
    base_status_t status = write_file(path, "new", &err);
    setrlimit(RLIMIT_FSIZE, &before);
    CU_ASSERT_EQUAL(status, BASE_ERR_IO);
    CU_ASSERT_PTR_NOT_NULL(strstr(err.text, path));
    holds("old");
    CU_ASSERT_EQUAL(files_in_folder(), 1);
}

static void mode_and_link_are_kept(void)
{
    struct stat st;
    char *link = base_xasprintf("%s/link", folder);
    CU_ASSERT_EQUAL_FATAL(write_file(path, "old", NULL), BASE_OK);
    CU_ASSERT_EQUAL(chmod(path, 0640), 0);
    CU_ASSERT_EQUAL_FATAL(symlink("out.json", link), 0);
    CU_ASSERT_EQUAL(write_file(link, "new", NULL), BASE_OK);
    CU_ASSERT_EQUAL(lstat(link, &st), 0);
    CU_ASSERT_TRUE(S_ISLNK(st.st_mode));
    CU_ASSERT_EQUAL(stat(path, &st), 0);
    CU_ASSERT_EQUAL(st.st_mode & 07777, 0640);
    holds("new");
    unlink(link);
    free(link);
}

static void what_cannot_be_written_says_why(void)
{
    base_err_t err;
    CU_ASSERT_EQUAL(write_file("/nonexistent/x.json", "x", &err), BASE_ERR_IO);
    CU_ASSERT_STRING_EQUAL(err.text,
                           "/nonexistent/x.json: cannot be written: No such file or directory");
    CU_ASSERT_EQUAL(write_file(folder, "x", &err), BASE_ERR_IO);
    CU_ASSERT_EQUAL(write_file("/dev/full", "x", &err), BASE_ERR_IO);
    CU_ASSERT_EQUAL(write_file("/dev/null", "x", &err), BASE_OK);
}

static void too_long_and_missing_files_are_refused(void)
{
    char *text = NULL;
    size_t length;
    base_err_t err;
    CU_ASSERT_EQUAL_FATAL(write_file(path, "12345", NULL), BASE_OK);
    CU_ASSERT_EQUAL(base_infile_read(path, 4, &text, &length, &err), BASE_ERR_INVAL);
    CU_ASSERT_EQUAL(base_infile_read("/dev/zero", 1 << 20, &text, &length, &err), BASE_ERR_INVAL);
    CU_ASSERT_EQUAL(base_infile_read(folder, 4, &text, &length, &err), BASE_ERR_INVAL);
    CU_ASSERT_EQUAL(base_infile_read("/nonexistent", 4, &text, &length, &err), BASE_ERR_INVAL);
    CU_ASSERT_STRING_EQUAL(err.text, "/nonexistent: No such file or directory");
    CU_ASSERT_PTR_NULL(text);
}

static void rank_lists_are_sorted_and_each_rank_stands_once(void)
{
    base_ranklist_t list;
    CU_ASSERT_EQUAL_FATAL(base_ranklist_parse("5-6,last,0,6", 9, &list, NULL), BASE_OK);
    static const uint32_t want[] = { 0, 5, 6, 8 };
    CU_ASSERT_EQUAL_FATAL(list.n, 4);
    CU_ASSERT_EQUAL(memcmp(list.ranks, want, sizeof(want)), 0);
    base_ranklist_fini(&list);
    CU_ASSERT_EQUAL_FATAL(base_ranklist_parse("all", 3, &list, NULL), BASE_OK);
    CU_ASSERT_EQUAL(list.n, 3);
    base_ranklist_fini(&list);
}

static void wrong_rank_lists_are_refused(void)
{
    static const char *const wrong[] = {
        "", ",", "9", "0,", "3-1", "-1", "1-9", "a-b", "1;", "0 1", "99999999999999999999999999"
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        base_ranklist_t list = { 0 };
        CU_ASSERT_EQUAL(base_ranklist_parse(wrong[i], 9, &list, NULL), BASE_ERR_INVAL);
        CU_ASSERT_PTR_NULL(list.ranks);
    }
}

static CU_TestInfo tests[] = {
    { "a file appears when it is complete", a_file_appears_when_it_is_complete },
    { "a discarded file leaves the old one", a_discarded_file_leaves_the_old_one },
    { "a full disk leaves the old file", a_full_disk_leaves_the_old_file },
    { "mode and link are kept", mode_and_link_are_kept },
    { "what cannot be written says why", what_cannot_be_written_says_why },
    { "too long and missing files are refused", too_long_and_missing_files_are_refused },
    { "rank lists are sorted, each rank stands once",
      rank_lists_are_sorted_and_each_rank_stands_once },
    { "wrong rank lists are refused", wrong_rank_lists_are_refused },
    CU_TEST_INFO_NULL,
};

static CU_SuiteInfo suites[] = {
    { "files", make_folder, remove_folder, NULL, NULL, tests },
    CU_SUITE_INFO_NULL,
};

int main(void)
{
    return cutap_run(suites);
}
