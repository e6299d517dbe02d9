# SPDX-License-Identifier: Apache-2.0
# Text files to C: each ARGV entry NAME=FILE[,FILE...] becomes an array of lines called NAME.
function embed(name, files,    list, n, i, line) {
  print "const char *const " name "[] = {"
  n = split(files, list, ",")
  for (i = 1; i <= n; i++) {
    while ((status = (getline line < list[i])) > 0) {
      gsub(/\\/, "&&", line)
      gsub(/"/, "\\\"", line)
      print "    \"" line "\\n\","
    }
    if (status < 0) {
      print list[i] ": cannot be read" > "/dev/stderr"
      exit 1
    }
    close(list[i])
  }
  print "    NULL,"
  print "};"
}

BEGIN {
  print "/* Made from sim/report/page; do not edit. */"
  print "/* clang-format off */"
  print "#include \"config.h\"\n"
  print "#include \"sim/report/page_files.h\"\n"
  print "#include <stddef.h>\n"
  for (a = 1; a < ARGC; a++) {
    at = index(ARGV[a], "=")
    embed(substr(ARGV[a], 1, at - 1), substr(ARGV[a], at + 1))
  }
}
