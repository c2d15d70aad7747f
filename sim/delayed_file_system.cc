// SPDX-License-Identifier: Apache-2.0
#include "sim/delayed_file_system.h"

#include <utility>
#include <vector>

#include "base/core/check.h"
#include "base/io/forwarding_file_system.h"

namespace cairn::io {
namespace {

struct Delay {
  std::shared_ptr<Scheduler> scheduler;
  uint64_t ns;

  uint64_t Begin() const { return scheduler->MonotonicNs(); }
  void End(uint64_t begin_ns) const {
    const uint64_t until_ns = begin_ns + ns, now_ns = scheduler->MonotonicNs();
    if (until_ns > now_ns) scheduler->Sleep(until_ns - now_ns);
  }
};

class DelayedFile final : public File {
 public:
  DelayedFile(std::unique_ptr<File> inner, Delay delay)
      : inner_(std::move(inner)), delay_(std::move(delay)) {}

  const std::string& path() const override { return inner_->path(); }
  bool direct() const override { return inner_->direct(); }
  Result<uint64_t> Size() override { return inner_->Size(); }
  Status Truncate(uint64_t bytes) override { return inner_->Truncate(bytes); }
  Status Allocate(uint64_t begin, uint64_t end) override { return inner_->Allocate(begin, end); }
  Status Read(uint64_t offset, std::span<std::byte> into) override {
    return inner_->Read(offset, into);
  }
  Status Write(uint64_t offset, std::span<const std::byte> from, bool durable) override {
    const uint64_t begin_ns = delay_.Begin();
    Status status = inner_->Write(offset, from, durable);
    if (durable) delay_.End(begin_ns);
    return status;
  }
  Status Sync() override {
    const uint64_t begin_ns = delay_.Begin();
    Status status = inner_->Sync();
    delay_.End(begin_ns);
    return status;
  }

  File* inner() const { return inner_.get(); }

 private:
  const std::unique_ptr<File> inner_;
  const Delay delay_;
};

class DelayedQueue final : public Queue {
 public:
  DelayedQueue(std::unique_ptr<Queue> inner, Delay delay)
      : inner_(std::move(inner)), delay_(std::move(delay)) {}
  ~DelayedQueue() override {
    while (in_flight() > 0) Reap();
  }

  void Submit(Request* request) override {
    started_.push_back({request, request->file, delay_.Begin()});
    request->file = static_cast<DelayedFile*>(request->file)->inner();
    inner_->Submit(request);
  }

  Request* Reap() override {
    Request* request = inner_->Reap();
    for (Started& started : started_) {
      if (started.request != request) continue;
      const uint64_t begin_ns = started.begin_ns;
      request->file = started.file;
      started = started_.back();
      started_.pop_back();
      const bool slow =
          request->kind == Request::Kind::kSync || request->kind == Request::Kind::kDurableWrite;
      if (slow) delay_.End(begin_ns);
      return request;
    }
    CAIRN_CHECK(!"a request came back that was never submitted");
    return nullptr;
  }

  size_t in_flight() const override { return inner_->in_flight(); }

 private:
  struct Started {
    Request* request;
    File* file;
    uint64_t begin_ns;
  };
  const std::unique_ptr<Queue> inner_;
  const Delay delay_;
  std::vector<Started> started_;
};

class DelayedFileSystem final : public ForwardingFileSystem {
 public:
  DelayedFileSystem(std::shared_ptr<FileSystem> inner, Delay delay)
      : ForwardingFileSystem(std::move(inner)), delay_(std::move(delay)) {}

  Result<std::shared_ptr<FileSystem>> Hold(const std::string& path) override {
    CAIRN_ASSIGN_OR_RETURN(std::shared_ptr<FileSystem> held, inner().Hold(path));
    if (held == nullptr) return held;
    return std::shared_ptr<FileSystem>(
        std::make_shared<DelayedFileSystem>(std::move(held), delay_));
  }
  Result<std::unique_ptr<File>> Open(const std::string& path, const OpenOptions& options) override {
    CAIRN_ASSIGN_OR_RETURN(auto file, inner().Open(path, options));
    return std::unique_ptr<File>(std::make_unique<DelayedFile>(std::move(file), delay_));
  }
  Status SyncDirectory(const std::string& path) override {
    const uint64_t begin_ns = delay_.Begin();
    Status status = inner().SyncDirectory(path);
    delay_.End(begin_ns);
    return status;
  }
  std::unique_ptr<Queue> NewQueue(size_t depth) override {
    return std::make_unique<DelayedQueue>(inner().NewQueue(depth), delay_);
  }

 private:
  const Delay delay_;
};

}  // namespace

World MakeDelayedWorld(World inner, uint64_t sync_delay_ns) {
  const Delay delay{inner.scheduler, sync_delay_ns};
  return {.files = std::make_shared<DelayedFileSystem>(std::move(inner.files), delay),
          .scheduler = std::move(inner.scheduler)};
}

}  // namespace cairn::io
