// SPDX-License-Identifier: Apache-2.0
//
// Batches of calls on objects that complete behind one file descriptor, as engines with a loop of
// their own need. Threads of the queue make the calls, so that neither the calling thread nor the
// interpreter's lock holds up the bytes.
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <map>
#include <memory>
#include <thread>

#include "api/python/src/names.h"
#include "api/python/src/objects.h"
#include "api/python/src/store.h"
#include "base/core/mutex.h"
#include "base/io/cond_var.h"
#include "cairn/objects.h"

namespace cairn::python {

namespace {

// One thread takes no writes, so that a read never waits for the disk to write.
constexpr uint32_t kMinThreads = 2;
constexpr uint32_t kMaxThreads = 64;  // More than any disk has a use for.

// Memory of a Python object that speaks the buffer protocol, borrowed. Made and ended with the
// interpreter's lock.
class Buffer {
 public:
  Buffer(nb::handle object, bool writable, size_t i) {
    if (PyObject_GetBuffer(object.ptr(), &view_, writable ? PyBUF_WRITABLE : PyBUF_SIMPLE) != 0) {
      PyErr_Clear();
      BadArgument("buffers[" + std::to_string(i) + "]: a " + nb::inst_name(object).c_str() +
                  " is no contiguous " + (writable ? "writable " : "") + "memory");
    }
  }
  Buffer(Buffer&& other) noexcept : view_(other.view_) { other.view_.obj = nullptr; }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  Buffer& operator=(Buffer&&) = delete;
  ~Buffer() { PyBuffer_Release(&view_); }

  std::span<std::byte> bytes() const {
    return {static_cast<std::byte*>(view_.buf), static_cast<size_t>(view_.len)};
  }

 private:
  Py_buffer view_{};
};

enum class Kind : uint8_t { kPut, kGet, kExists, kDelete };

struct Batch {
  uint64_t number = 0;
  Kind kind{};
  std::vector<std::string> keys;
  std::vector<std::string> namespaces;  // One for each key.
  std::vector<Buffer> buffers;          // The same, of puts and gets.
  // Ok: it was put, read whole, found, deleted. kNotFound: it does not exist.
  std::vector<Status> outcomes;
};

// The keys of a batch in one namespace.
struct Part {
  const std::string& ns;
  std::vector<size_t> indices;
};

class ObjectQueue {
 public:
  ObjectQueue(OpenStore& store, const ObjectClass& object_class, PutOptions options,
              uint32_t threads)
      : objects_(store.store()), put_(std::move(options)) {
    if (threads < kMinThreads || threads > kMaxThreads) {
      BadArgument("threads: must be " + std::to_string(kMinThreads) + " to " +
                  std::to_string(kMaxThreads));
    }
    put_.object_class = Take(Unlocked([&] { return objects_.RegisterClass(object_class); }));
    event_fd_ = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (event_fd_ < 0) {
      Check(Status(StatusCode::kIoError, "eventfd: errno " + std::to_string(errno)));
    }
    for (uint32_t i = 0; i < threads; ++i) {
      threads_.emplace_back([this, changes = i > 0] { Work(changes); });
    }
  }
  ~ObjectQueue() {
    Close();
    ::close(event_fd_);
  }
  ObjectQueue(const ObjectQueue&) = delete;
  ObjectQueue& operator=(const ObjectQueue&) = delete;

  int event_fd() const { return event_fd_; }

  uint64_t Submit(Kind kind, const nb::sequence& keys, const nb::sequence& namespaces,
                  const nb::object& buffers);
  nb::list Drain();
  void Close();

 private:
  void Work(bool changes);
  void Run(Batch* batch);
  void RunPart(const Part& part, Batch* batch);

  Objects objects_;
  PutOptions put_;
  int event_fd_ = -1;
  Mutex mutex_;
  io::CondVar wake_;
  std::deque<std::unique_ptr<Batch>> looks_ CAIRN_GUARDED_BY(mutex_);
  std::deque<std::unique_ptr<Batch>> changes_ CAIRN_GUARDED_BY(mutex_);
  std::deque<std::unique_ptr<Batch>> over_ CAIRN_GUARDED_BY(mutex_);
  uint64_t last_number_ CAIRN_GUARDED_BY(mutex_) = 0;
  bool closing_ CAIRN_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;  // Needs the interpreter's lock.
};

uint64_t ObjectQueue::Submit(Kind kind, const nb::sequence& keys, const nb::sequence& namespaces,
                             const nb::object& buffers) {
  auto batch = std::make_unique<Batch>();
  batch->kind = kind;
  for (const nb::handle key : keys) batch->keys.push_back(KeyOf(key));
  batch->namespaces = nb::cast<std::vector<std::string>>(namespaces);
  if (batch->namespaces.size() != batch->keys.size()) {
    BadArgument("namespaces: must be as many as keys");
  }
  if (!buffers.is_none()) {
    for (const nb::handle buffer : buffers) {
      batch->buffers.emplace_back(buffer, kind == Kind::kGet, batch->buffers.size());
    }
    if (batch->buffers.size() != batch->keys.size()) {
      BadArgument("buffers: must be as many as keys");
    }
  }
  batch->outcomes.resize(batch->keys.size());
  const bool look = kind == Kind::kGet || kind == Kind::kExists;
  const MutexLock lock(&mutex_);
  if (closing_) Check(Status(StatusCode::kInvalidState, "the queue is closed"));
  const uint64_t number = batch->number = ++last_number_;
  (look ? looks_ : changes_).push_back(std::move(batch));
  if (look) {
    wake_.NotifyOne();
  } else {
    wake_.NotifyAll();  // The thread that wakes may be the one that takes no writes.
  }
  return number;
}

void ObjectQueue::Work(bool changes) {
  MutexLock lock(&mutex_);
  for (;;) {
    auto* const from = !looks_.empty() || !changes ? &looks_ : &changes_;
    if (from->empty()) {
      if (closing_) return;
      wake_.Wait(&mutex_);
      continue;
    }
    std::unique_ptr<Batch> batch = std::move(from->front());
    from->pop_front();
    lock.Unlock();
    Run(batch.get());
    lock.Lock();
    over_.push_back(std::move(batch));
    // Fails only if 2^64 completions wait.
    static_cast<void>(::eventfd_write(event_fd_, 1));
  }
}

void ObjectQueue::Run(Batch* batch) {
  std::map<std::string_view, Part> parts;
  for (size_t i = 0; i < batch->keys.size(); ++i) {
    const std::string& ns = batch->namespaces[i];
    parts.try_emplace(ns, Part{.ns = ns, .indices = {}}).first->second.indices.push_back(i);
  }
  for (const auto& [ns, part] : parts) RunPart(part, batch);
}

void ObjectQueue::RunPart(const Part& part, Batch* batch) {
  const auto all = [&](const Status& status) {
    for (const size_t i : part.indices) batch->outcomes[i] = status;
  };
  // The results of a call, in the order of `part`, or its error for each.
  const auto each = [&](const auto& result, const auto& outcome_of) {
    if (!result.ok()) return all(result.status());
    for (size_t k = 0; k < part.indices.size(); ++k) {
      batch->outcomes[part.indices[k]] = outcome_of((*result)[k], part.indices[k]);
    }
  };
  std::vector<std::string_view> keys;
  for (const size_t i : part.indices) keys.push_back(batch->keys[i]);
  switch (batch->kind) {
    case Kind::kPut: {
      std::vector<ObjectPut> puts;
      for (const size_t i : part.indices) {
        puts.push_back({.key = batch->keys[i], .value = batch->buffers[i].bytes()});
      }
      PutOptions options = put_;
      options.ns = part.ns;
      each(objects_.PutBatch(puts, options),
           [](const PutResult& put, size_t /*i*/) { return put.status; });
      break;
    }
    case Kind::kGet: {
      std::vector<ObjectGet> gets;
      for (const size_t i : part.indices) {
        gets.push_back({.key = batch->keys[i], .into = batch->buffers[i].bytes()});
      }
      each(objects_.GetBatch(gets, {.ns = part.ns, .timeout_ns = put_.timeout_ns}),
           [&](const GetResult& got, size_t i) {
             const size_t room = batch->buffers[i].bytes().size();
             if (!got.status.ok() || got.bytes == room) return got.status;
             return Status(StatusCode::kInvalidArgument,
                           "the object has " + std::to_string(got.bytes) + " bytes, buffers[" +
                               std::to_string(i) + "] has " + std::to_string(room));
           });
      break;
    }
    case Kind::kExists: {
      const auto found = objects_.Exists(keys, part.ns);
      if (!found.ok()) return all(found.status());
      for (size_t k = 0; k < keys.size(); ++k) {
        if (!(*found)[k]) batch->outcomes[part.indices[k]] = Status(StatusCode::kNotFound, "");
      }
      break;
    }
    case Kind::kDelete:
      each(objects_.Delete(keys, part.ns, put_.durability),
           [](const Status& deleted, size_t /*i*/) { return deleted; });
      break;
  }
}

nb::list ObjectQueue::Drain() {
  uint64_t count = 0;
  static_cast<void>(::eventfd_read(event_fd_, &count));  // 0: nothing has ended.
  std::deque<std::unique_ptr<Batch>> over;
  {
    const MutexLock lock(&mutex_);
    over.swap(over_);
  }
  nb::list ended;
  for (const auto& batch : over) {
    nb::list outcomes;
    for (const Status& outcome : batch->outcomes) {
      const bool known = outcome.ok() || outcome.code() == StatusCode::kNotFound;
      outcomes.append(known ? nb::object(nb::bool_(outcome.ok())) : MakeError(outcome));
    }
    ended.append(nb::make_tuple(batch->number, outcomes));
  }
  return ended;
}

void ObjectQueue::Close() {
  {
    const MutexLock lock(&mutex_);
    closing_ = true;
    wake_.NotifyAll();
  }
  std::vector<std::thread> threads = std::move(threads_);
  threads_.clear();
  Unlocked([&] {
    for (std::thread& thread : threads) thread.join();
  });
}

}  // namespace

void BindObjectQueue(nb::module_& module) {
  nb::class_<ObjectQueue>(module, "ObjectQueue",
                          R"(Batches of calls on objects behind one file descriptor.

Objects are put in the class object_class, which is registered. A submit call takes keys (str or
bytes), the namespace of each, and for put and get the memory of each, contiguous, which is borrowed
until drain() tells the end. It returns the number of the batch at once; threads of the queue do the
work, one of them no puts and deletes, so that reads do not wait for the disk to write. Batches that
are under way together are in no order. timeout: seconds that a put or get may take. Any thread may
call.)")
      .def(
          "__init__",
          [](ObjectQueue* self, OpenStore& store, const std::string& object_class,
             uint32_t page_bytes, std::string_view dtype, std::string_view durability,
             std::string_view if_present, uint32_t threads, std::optional<double> timeout) {
            const PutOptions options{.if_present = Parse<IfPresent>(if_present, "if_present"),
                                     .durability = Parse<Durability>(durability, "durability"),
                                     .timeout_ns = TimeoutNs(timeout)};
            new (self) ObjectQueue(store,
                                   {.name = object_class,
                                    .page_bytes = page_bytes,
                                    .dtype = Parse<Dtype>(dtype, "dtype")},
                                   options, threads);
          },
          "store"_a, "object_class"_a, nb::kw_only(), "page_bytes"_a, "dtype"_a = "opaque",
          "durability"_a = "process", "if_present"_a = "keep", "threads"_a = 4,
          "timeout"_a = nb::none(), nb::keep_alive<1, 2>())
      .def("fileno", &ObjectQueue::event_fd, "Readable while batches that are over wait.")
      .def(
          "submit_put",
          [](ObjectQueue& self, const nb::sequence& keys, const nb::sequence& buffers,
             const nb::sequence& namespaces) {
            return self.Submit(Kind::kPut, keys, namespaces, buffers);
          },
          "keys"_a, "buffers"_a, "namespaces"_a, "True: it is there, as durable as was asked for.")
      .def(
          "submit_get",
          [](ObjectQueue& self, const nb::sequence& keys, const nb::sequence& buffers,
             const nb::sequence& namespaces) {
            return self.Submit(Kind::kGet, keys, namespaces, buffers);
          },
          "keys"_a, "buffers"_a, "namespaces"_a,
          "True: its memory, writable and as long as the object, holds it; False: there is none.")
      .def(
          "submit_exists",
          [](ObjectQueue& self, const nb::sequence& keys, const nb::sequence& namespaces) {
            return self.Submit(Kind::kExists, keys, namespaces, nb::none());
          },
          "keys"_a, "namespaces"_a, "Whether each is there.")
      .def(
          "submit_delete",
          [](ObjectQueue& self, const nb::sequence& keys, const nb::sequence& namespaces) {
            return self.Submit(Kind::kDelete, keys, namespaces, nb::none());
          },
          "keys"_a, "namespaces"_a, "True: it was there; False: there was none.")
      .def(
          "drain", &ObjectQueue::Drain,
          nb::sig("def drain(self) -> list[tuple[int, list[bool | Error]]]"),
          "(number, outcome of each key) of batches that are over, oldest first; never blocks. An\n"
          "outcome is True, False, or the exception that says why it is neither.")
      .def("close", &ObjectQueue::Close,
           "Does what was submitted, and ends the threads; blocks for so long. Submitting raises\n"
           "InvalidState then. Idempotent. The file descriptor goes with the object.");
}

}  // namespace cairn::python
