/* What the tests of the C interface have in common. */
#ifndef CHECK_H
#define CHECK_H

#include "quenchdb.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The test that runs. */
extern const char *running;

#define CHECK(condition)                                                                     \
    do {                                                                                     \
        if (!(condition)) {                                                                  \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, running, #condition);     \
            exit(1);                                                                         \
        }                                                                                    \
    } while (0)

/* A call that must work, whose last argument is `&error`. */
#define WORKS(call)                                                                          \
    do {                                                                                     \
        quench_error *error = NULL;                                                          \
        int code = (call);                                                                   \
        if (code < 0) {                                                                      \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, running,                  \
                    quench_error_message(error));                                            \
            exit(1);                                                                         \
        }                                                                                    \
        CHECK(error == NULL);                                                                \
    } while (0)

/* A call that must fail with a code and a message that contains a text. */
#define FAILS(expected, text, call)                                                          \
    do {                                                                                     \
        quench_error *error = NULL;                                                          \
        int code = (call);                                                                   \
        if (code != (expected) || error == NULL || strstr(quench_error_message(error), text) == NULL) { \
            fprintf(stderr, "%s:%d: %s: code %d, %s\n", __FILE__, __LINE__, running, code,   \
                    quench_error_message(error));                                            \
            exit(1);                                                                         \
        }                                                                                    \
        CHECK(quench_error_code(error) == code);                                             \
        CHECK(strlen(quench_error_advice(error)) > 0 && strlen(quench_error_name(error)) > 0); \
        quench_error_free(error);                                                            \
    } while (0)

#define S(text) text, sizeof(text) - 1

#endif
