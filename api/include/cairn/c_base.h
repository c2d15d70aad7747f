// SPDX-License-Identifier: Apache-2.0
//
// Of the C API: versions, codes, errors and texts. The conventions stand in cairn/c.h.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cairn/version.h"  // CAIRN_VERSION, for the preprocessor.

#define CAIRN_API __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

// --- Versions
// Of the API, by semantic versioning: "0.1.0", and the same as a number, major * 1000000 + minor *
// 1000 + patch. Before 1.0 a higher minor version may break programs.
CAIRN_API const char* cairn_version(void);
CAIRN_API uint32_t cairn_version_number(void);
// Of the files that this library writes. It reads those of each version from 1 on.
CAIRN_API uint32_t cairn_format_version(void);

// --- What a call returns: cairn::StatusCode
typedef int32_t cairn_code;
enum {
  CAIRN_OK = 0,
  CAIRN_NOT_FOUND = 1,
  CAIRN_ALREADY_EXISTS = 2,
  CAIRN_INVALID_ARGUMENT = 3,
  CAIRN_INVALID_STATE = 4,
  CAIRN_CONFLICT = 5,
  CAIRN_MODEL_MISMATCH = 6,
  CAIRN_CORRUPTION = 7,
  CAIRN_EVICTED = 8,
  CAIRN_EXPIRED = 9,
  CAIRN_STALE = 10,
  CAIRN_NO_SPACE = 11,
  CAIRN_BUSY = 12,
  CAIRN_POISONED = 13,
  CAIRN_UNKNOWN_OUTCOME = 14,
  CAIRN_IO_ERROR = 15,
  CAIRN_READ_ONLY = 16,
  CAIRN_LOCKED = 17,
  CAIRN_UNSUPPORTED_FORMAT = 18,
  CAIRN_CANCELLED = 19,
  CAIRN_DEADLINE_EXCEEDED = 20,
  CAIRN_OUT_OF_MEMORY = 21
};
CAIRN_API const char* cairn_code_name(cairn_code code);  // "NoSpace"; "Unknown" of other numbers.

// cairn::StatusReason
typedef int32_t cairn_reason;
enum {
  CAIRN_REASON_NONE = 0,
  CAIRN_REASON_NAMESPACE_QUOTA = 1,
  CAIRN_REASON_END_OF_FILE = 2,
  CAIRN_REASON_NO_DESCRIPTOR = 3
};

// Why a call failed. Never changes; may be read by several threads.
typedef struct cairn_error cairn_error;
CAIRN_API cairn_code cairn_error_code(const cairn_error* error);  // Of NULL: CAIRN_OK.
CAIRN_API cairn_reason cairn_error_reason(const cairn_error* error);
// For people; names the file, offset, field or argument. Never NULL; lives as long as the error.
CAIRN_API const char* cairn_error_message(const cairn_error* error);
CAIRN_API void cairn_error_free(cairn_error* error);

// --- Bytes that may hold any value, NUL included.
typedef struct cairn_bytes {
  const void* data;  // NULL where size is 0.
  size_t size;
} cairn_bytes;

// A text that a call gave as `char**`.
CAIRN_API void cairn_text_free(char* text);

// --- Limits (cairn/limits.h). `index` below cairn_limit_count(); `field` as "Delta::tokens".
CAIRN_API size_t cairn_limit_count(void);
CAIRN_API bool cairn_limit_at(size_t index, const char** field, uint64_t* value);

#ifdef __cplusplus
}  // extern "C"
#endif
