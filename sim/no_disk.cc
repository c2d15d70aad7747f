// SPDX-License-Identifier: Apache-2.0
#include "sim/no_disk.h"

#include <time.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <new>
#include <string>
#include <utility>

#include "base/io/forwarding_file_system.h"
#include "base/io/inline_queue.h"
#include "base/io/os_error.h"
#include "base/io/path.h"
#include "base/io/request_file.h"
#include "sim/chunked_bytes.h"

namespace cairn::io {
namespace {

constexpr uint64_t kVolumeBytes = 1ull << 40;

uint64_t ThreadCpuNs() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(time.tv_nsec);
}

// Counts the time of the calling thread until it goes.
class Metered {
 public:
  explicit Metered(NoDisk& machine, uint64_t written_bytes = 0)
      : machine_(machine), written_bytes_(written_bytes), begin_ns_(ThreadCpuNs()) {}
  Metered(const Metered&) = delete;
  Metered& operator=(const Metered&) = delete;
  ~Metered() { machine_.Count(written_bytes_, ThreadCpuNs() - begin_ns_); }

 private:
  NoDisk& machine_;
  const uint64_t written_bytes_, begin_ns_;
};

class NoDiskFile final : public RequestFile {
 public:
  NoDiskFile(std::string path, std::shared_ptr<ChunkedBytes> content, bool writable,
             NoDiskKeeps keeps)
      : path_(std::move(path)), content_(std::move(content)), writable_(writable), keeps_(keeps) {}

  const std::string& path() const override { return path_; }
  bool direct() const override { return false; }
  Result<uint64_t> Size() override { return content_->size(); }

  Status Truncate(uint64_t bytes) override {
    if (!writable_) return OsError(EINVAL, "ftruncate", path_, 0, bytes);
    const Metered metered(content_->machine());
    content_->Resize(bytes);
    return {};
  }
  Status Allocate(uint64_t, uint64_t end) override {
    if (!writable_) return OsError(EBADF, "fallocate", path_, 0, end);
    content_->Allocate(end);
    return {};
  }

  void Run(Request& request) override {
    switch (request.kind) {
      case Request::Kind::kRead: request.status = RunRead(request); break;
      case Request::Kind::kWrite:
      case Request::Kind::kDurableWrite: request.status = RunWrite(request); break;
      case Request::Kind::kSync: break;
    }
  }

 private:
  Status RunRead(Request& request) {
    const Metered metered(content_->machine());
    request.transferred = content_->Read(request.offset, {request.data, request.length});
    if (request.transferred == request.length) return {};
    return EndOfFile(path_, request.offset, request.length, request.transferred);
  }
  Status RunWrite(Request& request) {
    if (!writable_) return OsError(EBADF, "pwrite", path_, request.offset, request.length);
    const Metered metered(content_->machine(), request.length);
    const bool drop = keeps_ == NoDiskKeeps::kSmall && request.length >= kNoDiskDroppedBytes;
    if (!content_->Write(request.offset, {request.data, request.length}, drop)) {
      return OsError(ENOMEM, "pwrite", path_, request.offset, request.length);
    }
    request.transferred = request.length;
    return {};
  }

  const std::string path_;
  const std::shared_ptr<ChunkedBytes> content_;
  const bool writable_;
  const NoDiskKeeps keeps_;
};

// Names lie in the file system in memory, whose files stay empty; what they hold is found here, by
// the same normal paths. One lock for both, so that they agree.
class NoDiskFileSystem final : public ForwardingFileSystem {
 public:
  NoDiskFileSystem(std::shared_ptr<FileSystem> names, std::shared_ptr<NoDisk> machine,
                   NoDiskKeeps keeps)
      : ForwardingFileSystem(std::move(names)), machine_(std::move(machine)), keeps_(keeps) {}

  std::string_view name() const override { return "no_disk"; }

  Result<std::unique_ptr<File>> Open(const std::string& path, const OpenOptions& options) override {
    MutexLock lock(&mutex_);
    CAIRN_RETURN_IF_ERROR(inner().Open(path, options).status());
    std::shared_ptr<ChunkedBytes>& content = contents_[NormalPath(path)];
    if (content == nullptr) content = std::make_shared<ChunkedBytes>(machine_);
    return std::unique_ptr<File>(
        std::make_unique<NoDiskFile>(path, content, options.write, keeps_));
  }
  Result<FileInfo> Info(const std::string& path) override {
    MutexLock lock(&mutex_);
    CAIRN_ASSIGN_OR_RETURN(FileInfo info, inner().Info(path));
    const auto found = contents_.find(NormalPath(path));
    if (found == contents_.end()) return info;
    info.bytes = found->second->size();
    info.allocated_bytes = found->second->allocated_bytes();
    return info;
  }
  Status Rename(const std::string& from, const std::string& to) override {
    const std::string source = NormalPath(from), target = NormalPath(to);
    const Metered metered(*machine_);
    MutexLock lock(&mutex_);
    CAIRN_RETURN_IF_ERROR(inner().Rename(from, to));
    if (source == target) return {};
    Contents moved;
    for (auto it = contents_.lower_bound(source); it != contents_.end();) {
      if (!it->first.starts_with(source)) break;
      const std::string rest = it->first.substr(source.size());
      if (rest.empty() || rest.front() == '/') {
        moved[target + rest] = std::move(it->second);
        it = contents_.erase(it);
      } else {
        ++it;
      }
    }
    for (auto& [path, content] : moved) contents_[path] = std::move(content);
    return {};
  }
  Result<bool> Link(const std::string& from, const std::string& to) override {
    MutexLock lock(&mutex_);
    CAIRN_ASSIGN_OR_RETURN(const bool linked, inner().Link(from, to));
    const auto found = contents_.find(NormalPath(from));
    if (linked && found != contents_.end()) contents_[NormalPath(to)] = found->second;
    return linked;
  }
  Status Remove(const std::string& path) override {
    const Metered metered(*machine_);
    MutexLock lock(&mutex_);
    CAIRN_RETURN_IF_ERROR(inner().Remove(path));
    contents_.erase(NormalPath(path));
    return {};
  }
  Result<DiskSpace> Space(const std::string& path) override {
    CAIRN_RETURN_IF_ERROR(inner().Info(path).status());
    return DiskSpace{.total_bytes = kVolumeBytes, .free_bytes = kVolumeBytes};
  }
  std::unique_ptr<Queue> NewQueue(size_t depth) override {
    return std::make_unique<InlineQueue>(
        depth, [](Request& request) { static_cast<NoDiskFile*>(request.file)->Run(request); });
  }

 private:
  using Contents = std::map<std::string, std::shared_ptr<ChunkedBytes>>;

  const std::shared_ptr<NoDisk> machine_;
  const NoDiskKeeps keeps_;
  Mutex mutex_;
  Contents contents_ CAIRN_GUARDED_BY(mutex_);
};

}  // namespace

NoDisk::Chunk NoDisk::Take() {
  {
    MutexLock lock(&mutex_);
    if (!free_.empty()) {
      Chunk chunk = std::move(free_.back());
      free_.pop_back();
      return chunk;
    }
  }
  return Chunk(new (std::nothrow) std::byte[kChunkBytes]);
}

void NoDisk::Give(Chunk chunk) {
  MutexLock lock(&mutex_);
  free_.push_back(std::move(chunk));
}

void NoDisk::Reserve(uint64_t bytes) {
  for (uint64_t made = 0; made < bytes; made += kChunkBytes) {
    Chunk chunk(new (std::nothrow) std::byte[kChunkBytes]);
    if (chunk == nullptr) return;
    std::memset(chunk.get(), 1, kChunkBytes);
    Give(std::move(chunk));
  }
}

World MakeNoDiskWorld(std::shared_ptr<NoDisk> machine, NoDiskKeeps keeps) {
  World world = MakeMemoryWorld();
  world.files =
      std::make_shared<NoDiskFileSystem>(std::move(world.files), std::move(machine), keeps);
  return world;
}

}  // namespace cairn::io
