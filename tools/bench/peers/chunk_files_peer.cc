// SPDX-License-Identifier: Apache-2.0
//
// One file per chunk, named by its key, as LMCache's local disk backend and SGLang's HiCacheFile
// keep KV. Both write to the final name and sync nothing. A durable append here adds the steps that
// make that safe: a temporary name, fdatasync, rename, fsync of the directory. Other appends are
// written as they do. Its cache is the system's.

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/core/check.h"
#include "tools/bench/peers/chunk_keys.h"
#include "tools/bench/peers/peer.h"

namespace cairn::bench {
namespace {

Status Error(const std::string& path, const char* call) {
  return Status(StatusCode::kIoError, path + ": " + call + ": " + std::strerror(errno));
}

class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

class ChunkFilesPeer : public Peer {
 public:
  explicit ChunkFilesPeer(PeerOptions options) : options_(std::move(options)) {}

  Status Reopen() override {
    std::filesystem::create_directories(options_.path);
    directory_ = Descriptor(open(options_.path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    return directory_.get() < 0 ? Error(options_.path, "open") : Status::Ok();
  }

  Status Append(const Chunk& chunk, bool durable) override {
    const std::string path = PathOf(chunk.session, chunk.index);
    const std::string written = durable ? path + ".tmp" : path;
    const size_t bytes = GatherValue(chunk, chunk.scratch.data());
    {
      const Descriptor file(open(written.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
      if (file.get() < 0) return Error(written, "open");
      for (size_t done = 0; done < bytes;) {
        const ssize_t count = write(file.get(), chunk.scratch.data() + done, bytes - done);
        if (count < 0) return Error(written, "write");
        done += static_cast<size_t>(count);
      }
      if (!durable) return Status::Ok();
      if (fdatasync(file.get()) != 0) return Error(written, "fdatasync");
    }
    if (rename(written.c_str(), path.c_str()) != 0) return Error(written, "rename");
    return fsync(directory_.get()) == 0 ? Status::Ok() : Error(options_.path, "fsync");
  }

  // One call for all files and the directory: cheaper than a sync of each.
  Status Sync() override {
    return syncfs(directory_.get()) == 0 ? Status::Ok() : Error(options_.path, "syncfs");
  }

  Status Fork(SessionId parent, uint64_t chunks, uint64_t, SessionId session) override {
    keys_.Fork(parent, chunks, session);
    return Status::Ok();
  }

  // The next file is read ahead while this one is copied.
  Status Restore(const RestoreTarget& target) override {
    Descriptor next;
    for (size_t i = 0; i < target.chunks.size(); ++i) {
      const Chunk& chunk = target.chunks[i];
      if (i == 0) CAIRN_RETURN_IF_ERROR(OpenToRead(target.session, chunk, &next));
      Descriptor file;
      file = std::move(next);
      if (i + 1 < target.chunks.size()) {
        CAIRN_RETURN_IF_ERROR(OpenToRead(target.session, target.chunks[i + 1], &next));
      }
      for (size_t done = 0; done < chunk.value_bytes();) {
        const ssize_t count =
            read(file.get(), chunk.scratch.data() + done, chunk.value_bytes() - done);
        if (count <= 0) return Error(PathOf(target.session, chunk.index), "read");
        done += static_cast<size_t>(count);
      }
      ScatterValue(chunk.scratch.data(), chunk);
    }
    return Status::Ok();
  }

  Status Settle() override { return Status::Ok(); }  // It has no threads.
  Status FinishBackground() override { return Status::Ok(); }
  Status Close() override {
    directory_ = Descriptor();
    return Status::Ok();
  }

  nlohmann::json Settings() const override {
    return {{"io", "write, read; posix_fadvise(POSIX_FADV_WILLNEED) of the next file"},
            {"cache", "the system's, not bounded"},
            {"durable", "temporary name, fdatasync, rename, fsync of the directory"},
            {"not_durable", "final name, then syncfs"}};
  }

 private:
  std::string PathOf(SessionId session, uint64_t index) const {
    std::string path = options_.path + "/";
    for (const unsigned char byte : keys_.Of(session, index)) {
      constexpr char kDigits[] = "0123456789abcdef";
      path += kDigits[byte >> 4];
      path += kDigits[byte & 15];
    }
    return path;
  }

  Status OpenToRead(SessionId session, const Chunk& chunk, Descriptor* file) {
    const std::string path = PathOf(session, chunk.index);
    *file = Descriptor(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (file->get() < 0) return Error(path, "open");
    posix_fadvise(file->get(), 0, 0, POSIX_FADV_WILLNEED);
    return Status::Ok();
  }

  const PeerOptions options_;
  Descriptor directory_{};
  ChunkKeys keys_{};
};

}  // namespace

Result<std::unique_ptr<Peer>> OpenChunkFilesPeer(const PeerOptions& options) {
  return OpenPeer<ChunkFilesPeer>(options);
}

}  // namespace cairn::bench
