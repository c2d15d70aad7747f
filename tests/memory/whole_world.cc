// SPDX-License-Identifier: Apache-2.0
#include "tests/memory/whole_world.h"

#include <new>
#include <utility>

#include "sim/scheduler.h"
#include "tests/memory/failing_new.h"

namespace cairn::memory {

namespace {

// Within the machine. A switch to another fiber happens in here, and the next fiber leaves a scope
// of its own: so leaving restores the state of that fiber, not of the one before it.
class WholeScope {
 public:
  WholeScope() : before_(SetFailing(false)) {}
  ~WholeScope() { SetFailing(before_); }
  WholeScope(const WholeScope&) = delete;
  WholeScope& operator=(const WholeScope&) = delete;
  bool before() const { return before_; }

 private:
  const bool before_;
};

class WholeFile final : public io::File {
 public:
  explicit WholeFile(std::unique_ptr<io::File> inner) : inner_(std::move(inner)) {}
  ~WholeFile() override {
    const WholeScope scope;
    inner_.reset();
  }
  const std::string& path() const override { return inner_->path(); }
  bool direct() const override { return inner_->direct(); }
  Result<uint64_t> Size() override {
    const WholeScope scope;
    return inner_->Size();
  }
  Status Truncate(uint64_t bytes) override {
    const WholeScope scope;
    return inner_->Truncate(bytes);
  }
  Status Allocate(uint64_t begin, uint64_t end) override {
    const WholeScope scope;
    return inner_->Allocate(begin, end);
  }
  Status Read(uint64_t offset, std::span<std::byte> into) override {
    const WholeScope scope;
    return inner_->Read(offset, into);
  }
  Status Write(uint64_t offset, std::span<const std::byte> from, bool durable) override {
    const WholeScope scope;
    return inner_->Write(offset, from, durable);
  }
  Status Sync() override {
    const WholeScope scope;
    return inner_->Sync();
  }
  io::File* inner() const { return inner_.get(); }

 private:
  std::unique_ptr<io::File> inner_;
};

class WholeQueue final : public io::Queue {
 public:
  WholeQueue(io::FileSystem& files, size_t depth) {
    const WholeScope scope;
    inner_ = files.NewQueue(depth);
  }
  ~WholeQueue() override {
    const WholeScope scope;
    inner_.reset();
  }
  // The request's file is the inner one while it is in flight.
  void Submit(io::Request* request) override {
    const WholeScope scope;
    files_.emplace_back(request, request->file);
    request->file = static_cast<WholeFile*>(request->file)->inner();
    inner_->Submit(request);
  }
  io::Request* Reap() override {
    const WholeScope scope;
    io::Request* request = inner_->Reap();
    for (auto& [of, file] : files_) {
      if (of != request) continue;
      request->file = file;
      std::swap(files_.back().first, of);
      std::swap(files_.back().second, file);
      files_.pop_back();
      break;
    }
    return request;
  }
  size_t in_flight() const override { return inner_->in_flight(); }

 private:
  std::unique_ptr<io::Queue> inner_;
  std::vector<std::pair<io::Request*, io::File*>> files_;
};

class WholeLock final : public io::FileLock {
 public:
  explicit WholeLock(std::unique_ptr<io::FileLock> inner) : inner_(std::move(inner)) {}
  ~WholeLock() override {
    const WholeScope scope;
    inner_.reset();
  }
  Status Check() override {
    const WholeScope scope;
    return inner_->Check();
  }

 private:
  std::unique_ptr<io::FileLock> inner_;
};

class WholeFiles final : public io::FileSystem {
 public:
  explicit WholeFiles(std::shared_ptr<io::SimDisk> disk) : disk_(std::move(disk)) {}
  std::string_view name() const override { return disk_->name(); }
  Result<std::unique_ptr<io::File>> Open(const std::string& path,
                                         const io::OpenOptions& options) override {
    const WholeScope scope;
    auto opened = disk_->Open(path, options);
    if (!opened.ok()) return opened.status();
    return std::unique_ptr<io::File>(std::make_unique<WholeFile>(std::move(*opened)));
  }
  Result<io::FileInfo> Info(const std::string& path) override {
    const WholeScope scope;
    return disk_->Info(path);
  }
  Status Rename(const std::string& from, const std::string& to) override {
    const WholeScope scope;
    return disk_->Rename(from, to);
  }
  Result<bool> Link(const std::string& from, const std::string& to) override {
    const WholeScope scope;
    return disk_->Link(from, to);
  }
  Status Remove(const std::string& path) override {
    const WholeScope scope;
    return disk_->Remove(path);
  }
  Status CreateDirectory(const std::string& path) override {
    const WholeScope scope;
    return disk_->CreateDirectory(path);
  }
  Status SyncDirectory(const std::string& path) override {
    const WholeScope scope;
    return disk_->SyncDirectory(path);
  }
  Result<std::vector<std::string>> List(const std::string& path) override {
    const WholeScope scope;
    return disk_->List(path);
  }
  Result<std::unique_ptr<io::FileLock>> Lock(const std::string& path) override {
    const WholeScope scope;
    auto lock = disk_->Lock(path);
    if (!lock.ok()) return lock.status();
    return std::unique_ptr<io::FileLock>(std::make_unique<WholeLock>(std::move(*lock)));
  }
  Result<bool> IsLocked(const std::string& path) override {
    const WholeScope scope;
    return disk_->IsLocked(path);
  }
  Result<io::VolumeInfo> Volume(const std::string& path) override {
    const WholeScope scope;
    return disk_->Volume(path);
  }
  uint64_t OpenFilesMax() override { return disk_->OpenFilesMax(); }
  Result<io::DiskSpace> Space(const std::string& path) override {
    const WholeScope scope;
    return disk_->Space(path);
  }
  std::unique_ptr<io::Queue> NewQueue(size_t depth) override {
    return std::make_unique<WholeQueue>(*disk_, depth);
  }

 private:
  const std::shared_ptr<io::SimDisk> disk_;
};

class WholeThread final : public io::Thread {
 public:
  explicit WholeThread(std::unique_ptr<io::Thread> inner) : inner_(std::move(inner)) {}
  ~WholeThread() override {
    const WholeScope scope;
    inner_.reset();
  }

 private:
  std::unique_ptr<io::Thread> inner_;
};

class WholeScheduler final : public io::Scheduler {
 public:
  WholeScheduler(uint64_t seed, std::string* escaped)
      : inner_(std::make_unique<io::SimScheduler>(seed)), escaped_(escaped) {}
  ~WholeScheduler() override {
    const WholeScope scope;
    inner_.reset();
  }

  std::unique_ptr<io::Thread> StartThread(std::string name, std::function<void()> body,
                                          io::ThreadPriority priority) override {
    const WholeScope scope;
    auto watched = [this, name, body = std::move(body)]() mutable {
      // As the one who started it, whatever the fiber before this one was.
      SetFailing(true);
      try {
        body();
      } catch (const std::bad_alloc&) {
        SetFailing(false);
        if (escaped_->empty()) *escaped_ = "bad_alloc left the thread " + name;
      }
      SetFailing(false);
    };
    auto thread = inner_->StartThread(name, std::move(watched), priority);
    if (thread == nullptr) return nullptr;
    return std::make_unique<WholeThread>(std::move(thread));
  }
  bool Wait(std::atomic<uint32_t>& word, uint32_t expected, uint64_t deadline_ns) override {
    const WholeScope scope;
    return inner_->Wait(word, expected, deadline_ns);
  }
  void WakeAll(std::atomic<uint32_t>& word) override {
    const WholeScope scope;
    inner_->WakeAll(word);
  }
  void Sleep(uint64_t duration_ns) override {
    const WholeScope scope;
    inner_->Sleep(duration_ns);
  }
  void Yield() override {
    const WholeScope scope;
    inner_->Yield();
  }
  uint64_t MonotonicNs() override { return inner_->MonotonicNs(); }
  uint64_t WallNs() override { return inner_->WallNs(); }
  uint64_t Random64() override { return inner_->Random64(); }
  uint64_t ProcessId() override { return inner_->ProcessId(); }
  uint32_t Cores() override { return inner_->Cores(); }
  std::unique_ptr<io::Notifier> NewNotifier() override {
    const WholeScope scope;
    return inner_->NewNotifier();
  }

 private:
  std::unique_ptr<io::SimScheduler> inner_;
  std::string* const escaped_;
};

}  // namespace

io::World MakeWholeWorld(std::shared_ptr<io::SimDisk> disk, uint64_t seed, std::string* escaped) {
  return {.files = std::make_shared<WholeFiles>(std::move(disk)),
          .scheduler = std::make_shared<WholeScheduler>(seed, escaped)};
}

}  // namespace cairn::memory
