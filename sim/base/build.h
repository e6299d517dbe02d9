/* SPDX-License-Identifier: Apache-2.0
 * Which program this is, to the byte. */
#ifndef SIM_BASE_BUILD_H
#define SIM_BASE_BUILD_H

enum { BASE_BUILD_TEXT = 80 };

/* "mbsim 0.1.0, build 3f2a..." with the first bytes of the identity that the linker gives to every
 * program that differs (--build-id); without it, where the linker left none. */
void base_build_text(char text[static BASE_BUILD_TEXT]);

#endif
