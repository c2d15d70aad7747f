// SPDX-License-Identifier: Apache-2.0
#include "engine/follow/hint.h"

#include <array>
#include <cstddef>
#include <cstring>

#include "base/core/check.h"
#include "base/core/mutation.h"
#include "base/io/file_util.h"

namespace cairn::engine {

namespace {

struct HintBytes {
  char magic[8];
  std::array<std::byte, 16> store;
  uint64_t epoch, durable, manifest;
  uint64_t hash;
  HistoryId history;
  uint64_t history_hash;
  Indexing indexing;
  uint64_t max_bytes;
  uint64_t writer_hash;
};
static_assert(sizeof(HintBytes) == 104);
constexpr char kMagic[] = "CairnHnt";

// Hash of everything before a field.
uint64_t HashUpTo(const HintBytes& bytes, size_t field) {
  return Hash(std::as_bytes(std::span(&bytes, 1)).first(field));
}

bool IsWhole(const HintBytes& bytes) {
  if (bytes.hash != HashUpTo(bytes, offsetof(HintBytes, hash))) return false;
  const bool no_history = bytes.history == HistoryId() && bytes.history_hash == 0;
  if (!no_history && bytes.history_hash != HashUpTo(bytes, offsetof(HintBytes, history_hash))) {
    return false;
  }
  const bool no_writer =
      bytes.indexing == Indexing::kUnknown && bytes.max_bytes == 0 && bytes.writer_hash == 0;
  return no_writer || bytes.writer_hash == HashUpTo(bytes, offsetof(HintBytes, writer_hash));
}

}  // namespace

std::optional<Hint> ReadHint(io::FileSystem& files, const std::string& directory,
                             const StoreId& store) {
  constexpr int kAttempts = 3;  // A write is over in microseconds.
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const auto block =
        io::ReadWholeFile(files, io::JoinPath(directory, kHintFile), io::kBlockBytes);
    HintBytes bytes;
    if (!block.ok() || block->size() < sizeof(bytes)) return std::nullopt;
    std::memcpy(&bytes, block->data(), sizeof(bytes));
    if (CAIRN_KEPT(kHashOfHint) && !IsWhole(bytes)) continue;
    if (std::memcmp(bytes.magic, kMagic, sizeof(bytes.magic)) != 0 ||
        std::memcmp(bytes.store.data(), store.bytes.data(), sizeof(bytes.store)) != 0) {
      return std::nullopt;
    }
    return Hint{bytes.epoch,   bytes.durable,  bytes.manifest,
                bytes.history, bytes.indexing, bytes.max_bytes};
  }
  return std::nullopt;
}

Status HintWriter::Write(const Hint& hint, const StoreId& store) {
  if (written_ == hint) return Status::Ok();
  if (block_.empty()) {
    block_ = AlignedBuffer::TryAllocate(Allocator::Default(), io::kBlockBytes, io::kBlockBytes);
    if (block_.empty()) return Status(StatusCode::kOutOfMemory, "a block for HINT");
  }
  HintBytes bytes{};
  std::memcpy(bytes.magic, kMagic, sizeof(bytes.magic));
  std::memcpy(bytes.store.data(), store.bytes.data(), sizeof(bytes.store));
  bytes.epoch = hint.epoch;
  bytes.durable = hint.durable;
  bytes.manifest = hint.manifest;
  bytes.history = hint.history;
  bytes.indexing = hint.indexing;
  bytes.max_bytes = hint.max_bytes;
  bytes.hash = HashUpTo(bytes, offsetof(HintBytes, hash));
  bytes.history_hash = HashUpTo(bytes, offsetof(HintBytes, history_hash));
  bytes.writer_hash = HashUpTo(bytes, offsetof(HintBytes, writer_hash));
  std::memset(block_.data(), 0, io::kBlockBytes);
  std::memcpy(block_.data(), &bytes, sizeof(bytes));
  Status status = WriteBlock();
  if (status.ok()) {
    written_ = hint;
    return status;
  }
  written_.reset();
  file_.reset();
  static_cast<void>(io::RemoveIfExists(files_, io::JoinPath(path_, kHintFile)));
  return status;
}

Status HintWriter::WriteBlock() {
  if (file_ == nullptr) {
    CAIRN_ASSIGN_OR_RETURN(
        file_, files_.Open(io::JoinPath(path_, kHintFile), {.write = true, .create = true}));
  }
  return file_->Write(0, block_.span(), /*durable=*/false);
}

}  // namespace cairn::engine
