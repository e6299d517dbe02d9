/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/base/build.h"

#include <elf.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

enum { SHOWN_BYTES = 12 };

static void append_hex(char text[static BASE_BUILD_TEXT], const unsigned char *bytes, size_t n)
{
    size_t used = strlen(text);
    used += (size_t)snprintf(text + used, BASE_BUILD_TEXT - used, ", build ");
    for (size_t i = 0; i < n && i < SHOWN_BYTES; i++)
        used += (size_t)snprintf(text + used, BASE_BUILD_TEXT - used, "%02x", bytes[i]);
}

/* Notes follow each other; name and contents are padded to four bytes. */
static void search_notes(const char *at, size_t left, char text[static BASE_BUILD_TEXT])
{
    ElfW(Nhdr) note;
    while (left >= sizeof(note)) {
        memcpy(&note, at, sizeof(note));
        size_t name = (note.n_namesz + 3U) & ~3U, contents = (note.n_descsz + 3U) & ~3U;
        if (left - sizeof(note) < name || left - sizeof(note) - name < contents)
            return;
        if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 &&
            memcmp(at + sizeof(note), "GNU", 4) == 0) {
            append_hex(text, (const unsigned char *)at + sizeof(note) + name, note.n_descsz);
            return;
        }
        at += sizeof(note) + name + contents;
        left -= sizeof(note) + name + contents;
    }
}

/* The program itself comes first. */
static int look_at_program(struct dl_phdr_info *info, size_t size, void *text)
{
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        if (segment->p_type == PT_NOTE)
            /* NOLINTNEXTLINE(performance-no-int-to-ptr): where the loader has put it */
            search_notes((const char *)(info->dlpi_addr + segment->p_vaddr), segment->p_memsz,
                         text);
    }
    return 1;
}

void base_build_text(char text[static BASE_BUILD_TEXT])
{
    snprintf(text, BASE_BUILD_TEXT, "%s", PACKAGE_STRING);
    dl_iterate_phdr(look_at_program, text);
}
