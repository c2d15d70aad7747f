// SPDX-License-Identifier: Apache-2.0
//
// C API: branches as safetensors files, and all branches without KV as a MessagePack file
// (cairn/export.h, docs/export.md).
//
// All calls block: they read and write files on the calling thread, which also calls `progress`.
// An export makes FILE when it is whole and durable; a crash leaves FILE.tmp at most. An import is
// whole and durable when it returns; what an interrupted one leaves, the next import of the same
// file continues or removes.
#pragma once

#include "cairn/c/store.h"

#ifdef __cplusplus
extern "C" {
#endif

// --- cairn::ExportOptions
typedef struct cairn_export_options {
  size_t struct_size;
  uint64_t begin;     // A part of the branch, if it is not 0.
  uint64_t end;       // UINT64_MAX, the default: the branch's length.
  uint64_t kv_begin;  // UINT64_MAX, the default: one position before `begin`.
  uint64_t replace;   // 1: a file that exists. 0: it is CAIRN_ALREADY_EXISTS.
} cairn_export_options;
CAIRN_API void cairn_export_options_init(cairn_export_options* options, size_t struct_size);

// cairn::ExportInfo: what was written. cairn_export_info_free frees all of it.
typedef struct cairn_export_info {
  size_t struct_size;
  const char* snapshot_id;       // 32 hexadecimal digits.
  const char* base_snapshot_id;  // The same, of a part; else "".
  uint64_t begin, end;           // Tokens.
  const uint64_t* kv_ends;       // One a layer group of the model.
  size_t kv_end_count;
  uint64_t kv_bytes, file_bytes;
} cairn_export_info;
CAIRN_API void cairn_export_info_free(cairn_export_info* info);

// Writes tokens, states, spans and KV of a range. *info, which may be NULL, is what was written.
//   CAIRN_ALREADY_EXISTS: `path` exists.
//   CAIRN_INVALID_ARGUMENT: the range; or it cuts a content span.
//   CAIRN_CONFLICT: the branch was rewound meanwhile.
//   CAIRN_LOCKED: another export writes to `path`.
//   CAIRN_NOT_FOUND, CAIRN_EVICTED, CAIRN_CORRUPTION, CAIRN_STALE, CAIRN_NO_SPACE,
//     CAIRN_READ_ONLY, CAIRN_IO_ERROR
CAIRN_API cairn_code cairn_export_branch(const cairn_branch* branch, const char* path,
                                         const cairn_export_options* options,
                                         cairn_progress progress, void* context,
                                         cairn_export_info** info, cairn_error** error);

// --- cairn::ImportOptions. Here NULL is not the empty text.
typedef struct cairn_import_options {
  size_t struct_size;
  const char* name;  // NULL: the file's.
  const char* ns;    // NULL: the file's.
  uint64_t model;    // The branch must be of it. 0: the model is registered if it is not known.
} cairn_import_options;
CAIRN_API void cairn_import_options_init(cairn_import_options* options, size_t struct_size);

// cairn::ImportInfo: what was brought. cairn_import_info_free frees all of it, but no branch.
typedef struct cairn_import_info {
  size_t struct_size;
  uint64_t begin, end;         // The file's tokens.
  uint64_t found;              // The branch's length before.
  const uint64_t* kv_lengths;  // The branch's, one a layer group of the model.
  size_t kv_length_count;
  uint64_t kv_bytes;  // The file's.
} cairn_import_info;
CAIRN_API void cairn_import_info_free(cairn_import_info* info);

// Makes the branch of the file, or continues the one that a part goes on from. *branch and *info
// may both be NULL.
//   CAIRN_ALREADY_EXISTS: a branch of that name exists.
//   CAIRN_NOT_FOUND: no such file; a part, and no branch of that name.
//   CAIRN_CONFLICT: a part, and the branch is not what it goes on from.
//   CAIRN_INVALID_ARGUMENT: the file is none that an export writes, or is too large.
//   CAIRN_MODEL_MISMATCH: names the field.
//   CAIRN_CORRUPTION, CAIRN_UNSUPPORTED_FORMAT, CAIRN_BUSY, and errors of a change
CAIRN_API cairn_code cairn_import_branch(cairn_store* store, const char* path,
                                         const cairn_import_options* options,
                                         cairn_progress progress, void* context,
                                         cairn_branch** branch, cairn_import_info** info,
                                         cairn_error** error);

// --- cairn::ForestOptions
typedef struct cairn_forest_options {
  size_t struct_size;
  const char* ns;    // Only its branches. NULL: all, which is not the empty text.
  uint64_t replace;  // As in cairn_export_options.
} cairn_forest_options;
CAIRN_API void cairn_forest_options_init(cairn_forest_options* options, size_t struct_size);

// cairn::ForestInfo, which calls write.
typedef struct cairn_forest_info {
  size_t struct_size;
  uint64_t models, branches;
  uint64_t tokens;  // What branches share counts once.
  uint64_t file_bytes;
} cairn_forest_info;
CAIRN_API void cairn_forest_info_init(cairn_forest_info* info, size_t struct_size);

// Writes the branches without KV, and how they share tokens; `info` may be NULL. Errors: as
// cairn_export_branch.
CAIRN_API cairn_code cairn_export_forest(const cairn_store* store, const char* path,
                                         const cairn_forest_options* options,
                                         cairn_progress progress, void* context,
                                         cairn_forest_info* info, cairn_error** error);
// Makes all branches of the file; `info` may be NULL. Errors: as cairn_import_branch.
CAIRN_API cairn_code cairn_import_forest(cairn_store* store, const char* path,
                                         cairn_progress progress, void* context,
                                         cairn_forest_info* info, cairn_error** error);

#ifdef __cplusplus
}  // extern "C"
#endif
