// SPDX-License-Identifier: Apache-2.0
//
// A branch as a file that other programs read: safetensors, with everything that a store needs to
// take it in again. And the branches of a store without their KV, as one MessagePack file.
//
//   cairn::ExportBranch(chat, "/backup/chat.safetensors");            // All of it.
//   cairn::ExportBranch(chat, "/backup/chat-2.safetensors", {.begin = 4096});  // What came later.
//
//   cairn::ImportBranch(other, "/backup/chat.safetensors");           // Makes branch "chat",
//   cairn::ImportBranch(other, "/backup/chat-2.safetensors");         // which this one continues.
//
// docs/export.md describes both files, field by field.
//
// `path` is a file of the operating system, also for a store that lives in memory. (A store that
// was given a world of its own, Options::world, finds its files there.)
//
// All four calls block: they read and write on the calling thread and on one of the store's. A file
// is never held in memory: buffers are an eighth of staging memory (a quarter of
// Options::max_memory_bytes) or less, unless two positions are more. Other calls of the store go on
// meanwhile; Store::Close makes these fail, and waits for it. Thread-safe. `progress` is called on
// the calling thread, must not throw, and may be empty.
//
// An export writes FILE.tmp, makes it durable, and renames it to FILE: after an error or a crash
// FILE is what it was. A crash leaves FILE.tmp, which the next export to FILE replaces. An import
// makes what it brings durable before it returns. Until then it is not visible under its name,
// unless the file is a part, whose tokens its branch shows as they come; after an error the store
// is as it was. A crash leaves a branch "cairn-import-<id>"; the next import of the same file goes
// on with it. A part that a crash interrupted goes on where it stopped, when it is imported again.
//
// Errors of both imports, beside those of making branches and appending:
//   kNotFound: no such file.
//   kInvalidArgument: the file is none that these calls write, or larger than they take.
//   kUnsupportedFormat: a later version wrote it.
//   kCorruption: it is cut, or damaged, or does not fit its own description; names file and place.
//   kModelMismatch: the store has the model with other shapes; names the field.
//   kBusy: another thread imports the same file now, or staging memory is used up.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cairn/branch.h"
#include "cairn/store.h"

namespace [[gnu::visibility("default")]] cairn {

// Bytes that were read or written, of those there are.
using ExportProgress = std::function<void(uint64_t done, uint64_t total)>;

struct ExportOptions {
  // Tokens [begin, end); UINT64_MAX: the branch's length. A `begin` that is not 0 makes a part: it
  // can be imported only where the tokens before it are, and names them by their id.
  uint64_t begin = 0, end = UINT64_MAX;
  // A part's KV begins here. UINT64_MAX: one position before `begin`, since the last token of a
  // branch that is generated has no KV yet when what comes before is exported.
  uint64_t kv_begin = UINT64_MAX;
  bool replace = false;  // A file that exists. Off: it is kAlreadyExists.
};

// What an export wrote.
struct ExportInfo {
  // Names model, tokens and spans up to `end`, and up to `begin`: 32 hexadecimal digits. The second
  // is empty where `begin` is 0.
  std::string snapshot_id, base_snapshot_id;
  uint64_t begin = 0, end = 0;
  // Per layer group, how far its KV in the file reaches. Of a group that keeps all positions KV
  // that lies behind a position without any (Branch::EvictedKv) is left out.
  std::vector<uint64_t> kv_ends{};
  uint64_t kv_bytes = 0;
  uint64_t file_bytes = 0;
};

struct ImportOptions {
  // Instead of the file's.
  std::optional<std::string> name{}, ns{};
  // The branch must be of this model: kModelMismatch, naming the field. Nothing: the model is
  // registered if it is not known.
  std::optional<ModelId> model{};
};

// What an import brought.
struct ImportInfo {
  Branch branch;
  uint64_t begin = 0, end = 0;         // The file's tokens.
  uint64_t found = 0;                  // How long the branch was before: an import that goes on.
  std::vector<uint64_t> kv_lengths{};  // The branch's, now.
  uint64_t kv_bytes = 0;               // The file's.
};

// Writes tokens, states, spans, and all KV that the branch has in the range. The branch may grow
// meanwhile. A follower exports, too. Beside what reading the branch ends with (Branch::Restore):
//   kAlreadyExists: `path` exists.
//   kInvalidArgument: the range; it cuts a content span; or the description is larger than a reader
//     takes (16 MiB: tens of thousands of layers or spans).
//   kConflict: the branch was rewound while it was read.
//   kLocked: another export writes to `path`. kBusy: staging memory is used up.
//   kNoSpace, kReadOnly, kIoError: the disk's.
Result<ExportInfo> ExportBranch(const Branch& branch, const std::string& path,
                                const ExportOptions& options = {},
                                const ExportProgress& progress = {});

// Makes the branch of the file, or continues the one that a part goes on from. Importing a part
// that the branch has already changes nothing. Beside the errors above:
//   kAlreadyExists: a branch of that name exists.
//   kNotFound: a part, and no branch of that name exists.
//   kConflict: a part, and the branch is not what it goes on from, names what is missing; or the
//     branch was changed meanwhile.
Result<ImportInfo> ImportBranch(Store& store, const std::string& path,
                                const ImportOptions& options = {},
                                const ExportProgress& progress = {});

struct ForestOptions {
  std::optional<std::string> ns{};  // Only branches of this namespace; nothing: all of them.
  bool replace = false;             // As ExportOptions::replace.
};

// What an export or an import of a forest wrote or made.
struct ForestInfo {
  uint64_t models = 0, branches = 0;
  uint64_t tokens = 0;  // What branches share counts once.
  uint64_t file_bytes = 0;
};

// Writes the branches with tokens, states, spans, names and Keep, and how they share tokens; no KV.
// Each branch as it is when its turn comes. Errors: those of ExportBranch.
Result<ForestInfo> ExportForest(const Store& store, const std::string& path,
                                const ForestOptions& options = {},
                                const ExportProgress& progress = {});

// Makes all branches of the file, as forks of each other where they were; they get their names at
// the end, 256 in one record. kAlreadyExists: a branch of one of the names exists.
Result<ForestInfo> ImportForest(Store& store, const std::string& path,
                                const ExportProgress& progress = {});

}  // namespace cairn
