// SPDX-License-Identifier: Apache-2.0
//
// C API: versions, codes, errors and texts. The conventions stand in cairn/c.h. Nothing in this
// file blocks, takes a lock or needs a store; all of it may be called from any thread.
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
// The version of the API, by semantic versioning: "0.1.0", of the library that runs. A static text:
// never free it. Before 1.0 a higher minor version may break programs.
CAIRN_API const char* cairn_version(void);
// The same as a number: major * 1000000 + minor * 1000 + patch; compare it with CAIRN_VERSION of
// the headers.
CAIRN_API uint32_t cairn_version_number(void);
// The version of the files that this library writes. It reads those of each version from 1 on.
CAIRN_API uint32_t cairn_format_version(void);

// --- What a call returns: cairn::StatusCode
// cairn/status.h says what each code means and what a caller can do. Every code but
// CAIRN_UNKNOWN_OUTCOME says that nothing of the call was applied, unless its comment says
// otherwise.
typedef int32_t cairn_code;
enum {
  CAIRN_OK = 0,
  CAIRN_NOT_FOUND = 1,            // No such store, branch, model, object or file.
  CAIRN_ALREADY_EXISTS = 2,       // The name is taken, or a store exists.
  CAIRN_INVALID_ARGUMENT = 3,     // The call can never succeed as written; names the field.
  CAIRN_INVALID_STATE = 4,        // Closed, a child of fork(), or paused.
  CAIRN_CONFLICT = 5,             // Not what the caller expected, as of expected_length.
  CAIRN_MODEL_MISMATCH = 6,       // The model or class is another one; names the field.
  CAIRN_CORRUPTION = 7,           // Stored bytes fail their check; names file and offset.
  CAIRN_EVICTED = 8,              // KV is gone, or was never given.
  CAIRN_EXPIRED = 9,              // Never given yet.
  CAIRN_STALE = 10,               // A follower fell behind the writer's files; retry.
  CAIRN_NO_SPACE = 11,            // max_bytes or the disk is full.
  CAIRN_BUSY = 12,                // Buffers are full, or another call is in the way; retry later.
  CAIRN_POISONED = 13,            // The log failed earlier; reopen the store to write again.
  CAIRN_UNKNOWN_OUTCOME = 14,     // Applied perhaps; expected_length settles it.
  CAIRN_IO_ERROR = 15,            // The operating system or the device refused.
  CAIRN_READ_ONLY = 16,           // A follower cannot change anything.
  CAIRN_LOCKED = 17,              // Another process owns the store for writing.
  CAIRN_UNSUPPORTED_FORMAT = 18,  // A file of a newer format.
  CAIRN_CANCELLED = 19,           // Before it was applied.
  CAIRN_DEADLINE_EXCEEDED = 20,   // Before it was applied.
  CAIRN_OUT_OF_MEMORY = 21        // An allocation failed; no trace is left.
};
// "NoSpace"; "Unknown" of other numbers. A static text.
CAIRN_API const char* cairn_code_name(cairn_code code);

// cairn::StatusReason: distinguishes causes of one code.
typedef int32_t cairn_reason;
enum {
  CAIRN_REASON_NONE = 0,
  CAIRN_REASON_NAMESPACE_QUOTA = 1,  // NO_SPACE: the cap of a namespace.
  CAIRN_REASON_END_OF_FILE = 2,      // IO_ERROR: the file is shorter than what was asked for.
  CAIRN_REASON_NO_DESCRIPTOR = 3     // IO_ERROR: no file descriptor is left.
};

// Why a call failed. Never changes; may be read by several threads.
typedef struct cairn_error cairn_error;
CAIRN_API cairn_code cairn_error_code(const cairn_error* error);      // NULL: CAIRN_OK.
CAIRN_API cairn_reason cairn_error_reason(const cairn_error* error);  // NULL: CAIRN_REASON_NONE.
// For people; names the file, offset, field or argument. Never NULL; lives as long as the error.
CAIRN_API const char* cairn_error_message(const cairn_error* error);
// The caller frees each error that a call gave, once. NULL, and the constant of convention 1, are
// fine.
CAIRN_API void cairn_error_free(cairn_error* error);

// --- Bytes that may hold any value, NUL included.
// Borrowed where a caller gives it; where a call gives it, part of the struct that it stands in.
typedef struct cairn_bytes {
  const void* data;  // NULL where size is 0.
  size_t size;
} cairn_bytes;

// Frees a text that a call gave as `char**`. NULL is fine.
CAIRN_API void cairn_text_free(char* text);

// --- Limits (cairn/limits.h). `index` below cairn_limit_count(); `field` as "Delta::tokens".
CAIRN_API size_t cairn_limit_count(void);
// False beyond the last one. `field` and `value` may be NULL; the text is static.
CAIRN_API bool cairn_limit_at(size_t index, const char** field, uint64_t* value);

#ifdef __cplusplus
}  // extern "C"
#endif
