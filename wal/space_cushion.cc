// SPDX-License-Identifier: Apache-2.0
#include "wal/space_cushion.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/core/aligned_buffer.h"
#include "base/core/check.h"
#include "base/core/out_of_memory.h"
#include "base/io/file_util.h"

namespace cairn::wal {
namespace {

constexpr std::string_view kPrefix = "cushion-";

// Bytes that look like chance: compression would make a small file of a large one.
void FillWithNoise(uint64_t state, std::span<std::byte> bytes) {
  for (size_t at = 0; at + sizeof(state) <= bytes.size(); at += sizeof(state)) {
    state ^= state << 13;  // xorshift64
    state ^= state >> 7;
    state ^= state << 17;
    std::memcpy(bytes.data() + at, &state, sizeof(state));
  }
}

}  // namespace

bool IsCushionFileName(std::string_view name) { return name.starts_with(kPrefix); }

SpaceCushion::SpaceCushion(io::World world, std::string directory, uint64_t segment_bytes)
    : world_(std::move(world)),
      directory_(std::move(directory)),
      piece_bytes_(CushionPieceBytes(segment_bytes)),
      made_(kCushionPieces) {}

std::string SpaceCushion::PathOf(size_t piece) const {
  return io::JoinPath(directory_, std::string(kPrefix) + std::to_string(piece));
}

Status SpaceCushion::Open() {
  io::FileSystem& files = *world_.files;
  CAIRN_ASSIGN_OR_RETURN(const io::VolumeInfo volume, files.Volume(directory_));
  overwrites_ = io::OverwritesOn(volume.file_system);
  if (overwrites_ != io::Overwrites::kInPlace) pieces_ = kCushionPieces;
  CAIRN_ASSIGN_OR_RETURN(const std::vector<std::string> names, files.List(directory_));
  for (const std::string& name : names) {
    if (!IsCushionFileName(name)) continue;
    const std::string path = io::JoinPath(directory_, name);
    CAIRN_ASSIGN_OR_RETURN(const io::FileInfo info, files.Info(path));
    size_t piece = 0;
    while (piece < pieces_ && PathOf(piece) != path) ++piece;
    if (piece == pieces_ || info.bytes != piece_bytes_) {
      CAIRN_RETURN_IF_ERROR(files.Remove(path));
      continue;
    }
    const MutexLock lock(&mutex_);
    made_[piece] = true;
    left_.fetch_add(1);
  }
  return Status::Ok();
}

bool SpaceCushion::GiveUpOne(io::FileSystem& files, const std::string& directory) {
  const auto names = files.List(directory);
  if (!names.ok()) return false;
  const auto found = std::find_if(names->begin(), names->end(), IsCushionFileName);
  return found != names->end() && files.Remove(io::JoinPath(directory, *found)).ok();
}

Status SpaceCushion::MakeWhole() {
  for (size_t piece = 0; piece < pieces_; ++piece) {
    {
      const MutexLock lock(&mutex_);
      if (made_[piece]) continue;
    }
    const Status made = CatchBadAlloc([&] { return Make(piece); });
    if (!made.ok()) {
      static_cast<void>(io::RemoveIfExists(*world_.files, PathOf(piece)));
      return made;
    }
    const MutexLock lock(&mutex_);
    made_[piece] = true;
    left_.fetch_add(1, std::memory_order_release);
  }
  return Status::Ok();
}

// Synced, or its blocks would not be taken yet. A crash leaves a file of another size.
Status SpaceCushion::Make(size_t piece) {
  AlignedBuffer noise =
      AlignedBuffer::TryAllocate(Allocator::Default(), piece_bytes_, io::kBlockBytes);
  if (noise.empty()) return Status(StatusCode::kOutOfMemory, "no memory for a piece of cushion");
  FillWithNoise(world_.scheduler->Random64() | 1, noise.span());
  CAIRN_ASSIGN_OR_RETURN(
      const auto file,
      world_.files->Open(PathOf(piece), {.write = true, .create = true, .direct = true}));
  CAIRN_RETURN_IF_ERROR(file->Write(0, noise.span(), /*durable=*/false));
  return file->Sync();
}

bool SpaceCushion::GiveUpOne() {
  size_t piece = 0;
  {
    const MutexLock lock(&mutex_);
    const auto found = std::find(made_.begin(), made_.end(), true);
    if (found == made_.end()) return false;
    *found = false;
    left_.fetch_sub(1, std::memory_order_release);
    piece = static_cast<size_t>(found - made_.begin());
  }
  return io::RemoveIfExists(*world_.files, PathOf(piece)).ok();
}

}  // namespace cairn::wal
