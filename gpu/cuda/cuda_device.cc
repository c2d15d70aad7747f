// SPDX-License-Identifier: Apache-2.0
#include "gpu/cuda/cuda_device.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/core/check.h"
#include "gpu/cuda/kernels.h"

namespace cairn::gpu {
namespace {

// Wait polls this long without sleeping, for work that is nearly done, then sleeps in between.
constexpr uint64_t kSpinNs = 20'000;
constexpr uint64_t kSleepNs = 50'000;
// Entry points as of this driver, which is the first with batches of copies.
constexpr unsigned kEntryPointVersion = 12080;

Status Failed(const char* call, cudaError_t error) {
  return Status(StatusCode::kIoError, std::string("device: ") + call + ": " +
                                          cudaGetErrorName(error) + ", " +
                                          cudaGetErrorString(error));
}

// Errors after which CUDA refuses all that follows in this process.
bool IsSticky(cudaError_t error) {
  switch (error) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorMisalignedAddress:
    case cudaErrorIllegalInstruction:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorHardwareStackError:
    case cudaErrorAssert:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorDevicesUnavailable:
    case cudaErrorDeviceUninitialized: return true;
    default: return false;
  }
}

// A function of the driver, if it has it: the program does not link to any.
template <typename Function>
Function* EntryPoint(const char* name) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result;
  if (cudaGetDriverEntryPointByVersion(name, &found, kEntryPointVersion, cudaEnableDefault,
                                       &result) != cudaSuccess ||
      result != cudaDriverEntryPointSuccess) {
    static_cast<void>(cudaGetLastError());  // Later calls must not see this error.
    return nullptr;
  }
  return reinterpret_cast<Function*>(found);
}

using WriteWord = CUresult(CUstream, CUdeviceptr, cuuint32_t, unsigned);

// Handles by id; an adopted one is not ours to destroy.
template <typename Handle>
class Handles {
 public:
  uint64_t Add(Handle handle, bool adopted) {
    const uint64_t id = ++last_;
    all_[id] = {handle, adopted};
    return id;
  }
  Result<Handle> Find(uint64_t id, const char* what) const {
    const auto found = all_.find(id);
    if (found != all_.end()) return found->second.first;
    return Status(StatusCode::kInvalidArgument,
                  std::string("device: ") + what + " is of another device, or was returned");
  }
  // Returns the handles that the caller must destroy.
  std::vector<Handle> Remove(uint64_t id) {
    const auto found = all_.find(id);
    CAIRN_CHECK(found != all_.end());
    const auto [handle, adopted] = found->second;
    all_.erase(found);
    return adopted ? std::vector<Handle>() : std::vector<Handle>{handle};
  }
  std::vector<uint64_t> ids() const {
    std::vector<uint64_t> ids;
    for (const auto& [id, handle] : all_) ids.push_back(id);
    return ids;
  }

 private:
  std::map<uint64_t, std::pair<Handle, bool>> all_;
  uint64_t last_ = 0;
};

using GetContext = CUresult(CUcontext*);
using SetContext = CUresult(CUcontext);

// While it lives, this thread's calls neither fail because another thread captures a graph in
// global mode, nor break that capture; and at its end the thread's current device is the caller's
// again. If the driver lacks these two functions, or the thread had no device, nothing is restored.
class CallersThread {
 public:
  CallersThread(GetContext* get, SetContext* set) : set_(set) {
    static_cast<void>(cudaThreadExchangeStreamCaptureMode(&mode_));
    if (get == nullptr || set == nullptr || get(&context_) != CUDA_SUCCESS) context_ = nullptr;
  }
  ~CallersThread() {
    if (context_ != nullptr) static_cast<void>(set_(context_));
    static_cast<void>(cudaThreadExchangeStreamCaptureMode(&mode_));
  }
  CallersThread(const CallersThread&) = delete;
  CallersThread& operator=(const CallersThread&) = delete;

 private:
  SetContext* const set_;
  CUcontext context_ = nullptr;
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

class CudaDevice final : public Device {
 public:
  CudaDevice(std::shared_ptr<io::Scheduler> scheduler, int ordinal,
             const cudaDeviceProp& properties)
      : scheduler_(std::move(scheduler)), ordinal_(ordinal) {
    info_.name = properties.name;
    info_.processors = static_cast<uint32_t>(properties.multiProcessorCount);
    info_.memory_bytes = properties.totalGlobalMem;
    write_word_ = EntryPoint<WriteWord>("cuStreamWriteValue32");
    wait_word_ = EntryPoint<WriteWord>("cuStreamWaitValue32");
    get_context_ = EntryPoint<GetContext>("cuCtxGetCurrent");
    set_context_ = EntryPoint<SetContext>("cuCtxSetCurrent");
    info_.copies_in_batches = EntryPoint<void()>("cuMemcpyBatchAsync") != nullptr;
    info_.waits_for_words = write_word_ != nullptr && wait_word_ != nullptr;
  }

  ~CudaDevice() override {
    const CallersThread caller(get_context_, set_context_);
    static_cast<void>(Enter());
    for (const uint64_t id : streams_.ids()) {
      const Result<cudaStream_t> stream = streams_.Find(id, "");
      static_cast<void>(cudaStreamSynchronize(*stream));
      Return(Stream{id});
    }
    for (const uint64_t id : events_.ids()) Return(Event{id});
    for (const auto& [at, memory] : memory_) Release(at, memory);
  }

  const DeviceInfo& info() const override { return info_; }

  Result<std::byte*> Allocate(Memory memory, uint64_t bytes) override {
    const CallersThread caller(get_context_, set_context_);
    CAIRN_RETURN_IF_ERROR(Enter());
    void* at = nullptr;
    const cudaError_t error = memory == Memory::kDevice
                                  ? cudaMalloc(&at, bytes)
                                  : cudaHostAlloc(&at, bytes, cudaHostAllocPortable);
    CAIRN_RETURN_IF_ERROR(Check("Allocate", error));
    const std::lock_guard lock(mutex_);
    memory_[at] = memory;
    return static_cast<std::byte*>(at);
  }

  void Free(std::byte* at) override {
    Memory memory;
    {
      const std::lock_guard lock(mutex_);
      const auto found = memory_.find(at);
      CAIRN_CHECK(found != memory_.end());
      memory = found->second;
      memory_.erase(found);
    }
    const CallersThread caller(get_context_, set_context_);
    static_cast<void>(Enter());
    Release(at, memory);
  }

  Status Register(std::span<std::byte> host) override {
    const CallersThread caller(get_context_, set_context_);
    CAIRN_RETURN_IF_ERROR(Enter());
    return Check("Register", cudaHostRegister(host.data(), host.size(), cudaHostRegisterPortable));
  }

  void Unregister(std::span<std::byte> host) override {
    const CallersThread caller(get_context_, set_context_);
    static_cast<void>(Enter());
    static_cast<void>(cudaHostUnregister(host.data()));
  }

  Result<Stream> NewStream(Priority priority) override {
    const CallersThread caller(get_context_, set_context_);
    CAIRN_RETURN_IF_ERROR(Enter());
    int lowest = 0, highest = 0;
    CAIRN_RETURN_IF_ERROR(Check("NewStream", cudaDeviceGetStreamPriorityRange(&lowest, &highest)));
    cudaStream_t stream;
    CAIRN_RETURN_IF_ERROR(Check(
        "NewStream", cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking,
                                                  priority == Priority::kLow ? lowest : highest)));
    const std::lock_guard lock(mutex_);
    return Stream{streams_.Add(stream, false)};
  }

  Result<Stream> AdoptStream(uintptr_t handle) override {
    const CallersThread caller(get_context_, set_context_);
    CAIRN_RETURN_IF_ERROR(Enter());
    auto* const stream = reinterpret_cast<cudaStream_t>(handle);
    int device = -1;
    CAIRN_RETURN_IF_ERROR(Check("AdoptStream", cudaStreamGetDevice(stream, &device)));
    if (device != ordinal_) {
      return Status(StatusCode::kInvalidArgument, "device: the stream is of another device");
    }
    const std::lock_guard lock(mutex_);
    return Stream{streams_.Add(stream, true)};
  }

  Result<Event> NewEvent() override {
    const CallersThread caller(get_context_, set_context_);
    CAIRN_RETURN_IF_ERROR(Enter());
    cudaEvent_t event;
    CAIRN_RETURN_IF_ERROR(
        Check("NewEvent", cudaEventCreateWithFlags(&event, cudaEventDisableTiming)));
    const std::lock_guard lock(mutex_);
    return Event{events_.Add(event, false)};
  }

  Result<Event> AdoptEvent(uintptr_t handle) override {
    const std::lock_guard lock(mutex_);
    return Event{events_.Add(reinterpret_cast<cudaEvent_t>(handle), true)};
  }

  void Return(Stream stream) override {
    const std::lock_guard lock(mutex_);
    for (const cudaStream_t own : streams_.Remove(stream.id)) {
      static_cast<void>(cudaStreamDestroy(own));
    }
  }

  Result<bool> IsCaptured(Stream stream) override {
    const CallersThread caller(get_context_, set_context_);
    CAIRN_RETURN_IF_ERROR(Enter());
    CAIRN_ASSIGN_OR_RETURN(cudaStream_t in, Find(stream));
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    CAIRN_RETURN_IF_ERROR(Check("IsCaptured", cudaStreamIsCapturing(in, &status)));
    return status != cudaStreamCaptureStatusNone;
  }

  void Return(Event event) override {
    const std::lock_guard lock(mutex_);
    for (const cudaEvent_t own : events_.Remove(event.id)) {
      static_cast<void>(cudaEventDestroy(own));
    }
  }

  Status Copy(Stream stream, std::span<const CopyPiece> pieces) override {
    const CallersThread caller(get_context_, set_context_);
    CAIRN_RETURN_IF_ERROR(Enter());
    CAIRN_ASSIGN_OR_RETURN(cudaStream_t in, Find(stream));
    if (info_.copies_in_batches && pieces.size() > 1) return CopyBatch(in, pieces);
    for (const CopyPiece& piece : pieces) {
      CAIRN_RETURN_IF_ERROR(
          Check("Copy", cudaMemcpyAsync(piece.to, piece.from, piece.bytes, cudaMemcpyDefault, in)));
    }
    return Status::Ok();
  }

  Status Fill(Stream stream, std::span<std::byte> at, std::byte with) override {
    const CallersThread caller(get_context_, set_context_);
    CAIRN_RETURN_IF_ERROR(Enter());
    CAIRN_ASSIGN_OR_RETURN(cudaStream_t in, Find(stream));
    return Check("Fill", cudaMemsetAsync(at.data(), static_cast<int>(with), at.size(), in));
  }

  using Device::Launch;
  Status Launch(Stream stream, Kernel kernel, const LaunchShape& shape,
                std::span<const std::byte> arguments) override {
    const CallersThread caller(get_context_, set_context_);
    CAIRN_RETURN_IF_ERROR(Enter());
    CAIRN_CHECK(arguments.size() <= kArgumentBytesMax);
    CAIRN_ASSIGN_OR_RETURN(cudaStream_t in, Find(stream));
    auto* const bytes = const_cast<std::byte*>(arguments.data());
    void* parameters[] = {bytes};
    return Check("Launch",
                 cudaLaunchKernel(CudaFunctionOf(kernel), dim3(shape.blocks), dim3(shape.threads),
                                  parameters, shape.shared_bytes, in));
  }

  Status Record(Stream stream, Event event) override {
    const CallersThread caller(get_context_, set_context_);
    CAIRN_RETURN_IF_ERROR(Enter());
    CAIRN_ASSIGN_OR_RETURN(cudaStream_t in, Find(stream));
    CAIRN_ASSIGN_OR_RETURN(cudaEvent_t what, Find(event));
    return Check("Record", cudaEventRecord(what, in));
  }

  Status StreamWait(Stream stream, Event event) override {
    const CallersThread caller(get_context_, set_context_);
    CAIRN_RETURN_IF_ERROR(Enter());
    CAIRN_ASSIGN_OR_RETURN(cudaStream_t in, Find(stream));
    CAIRN_ASSIGN_OR_RETURN(cudaEvent_t what, Find(event));
    return Check("StreamWait", cudaStreamWaitEvent(in, what, 0));
  }

  Status SetWord(Stream stream, uint32_t* word, uint32_t value) override {
    return Word("SetWord", write_word_, stream, word, value, CU_STREAM_WRITE_VALUE_DEFAULT);
  }

  Status AwaitWord(Stream stream, const uint32_t* word, uint32_t at_least) override {
    return Word("AwaitWord", wait_word_, stream, word, at_least, CU_STREAM_WAIT_VALUE_GEQ);
  }

  Result<bool> Reached(Event event) override {
    const CallersThread caller(get_context_, set_context_);
    CAIRN_RETURN_IF_ERROR(Enter());
    CAIRN_ASSIGN_OR_RETURN(cudaEvent_t what, Find(event));
    const cudaError_t error = cudaEventQuery(what);
    if (error == cudaErrorNotReady) return false;
    CAIRN_RETURN_IF_ERROR(Check("Reached", error));
    return true;
  }

  Status Wait(Event event, uint64_t deadline_ns) override {
    const uint64_t begin_ns = scheduler_->MonotonicNs();
    for (;;) {
      CAIRN_ASSIGN_OR_RETURN(const bool reached, Reached(event));
      if (reached) return Status::Ok();
      const uint64_t now_ns = scheduler_->MonotonicNs();
      if (now_ns >= deadline_ns) {
        return Status(StatusCode::kDeadlineExceeded, "device: the event was not reached");
      }
      if (now_ns - begin_ns > kSpinNs) scheduler_->Sleep(kSleepNs);
    }
  }

  Status lost() const override {
    const std::lock_guard lock(mutex_);
    return lost_;
  }

 private:
  // Begins every call: this device becomes the thread's current one.
  Status Enter() {
    CAIRN_RETURN_IF_ERROR(lost());
    return Check("cudaSetDevice", cudaSetDevice(ordinal_));
  }

  Status Check(const char* call, cudaError_t error) {
    if (error == cudaSuccess) return Status::Ok();
    static_cast<void>(cudaGetLastError());
    if (error == cudaErrorMemoryAllocation) {
      return Status(StatusCode::kOutOfMemory,
                    std::string("device: ") + call + ": " + cudaGetErrorString(error));
    }
    Status status = Failed(call, error);
    const std::lock_guard lock(mutex_);
    if (IsSticky(error) && lost_.ok()) lost_ = status;
    return status;
  }

  Result<cudaStream_t> Find(Stream stream) const {
    const std::lock_guard lock(mutex_);
    return streams_.Find(stream.id, "the stream");
  }
  Result<cudaEvent_t> Find(Event event) const {
    const std::lock_guard lock(mutex_);
    return events_.Find(event.id, "the event");
  }

  // In the order of the stream; the pieces have no order among themselves.
  Status CopyBatch(cudaStream_t in, std::span<const CopyPiece> pieces) {
    std::vector<void*> to;
    std::vector<const void*> from;
    std::vector<size_t> bytes;
    for (const CopyPiece& piece : pieces) {
      to.push_back(piece.to);
      from.push_back(piece.from);
      bytes.push_back(piece.bytes);
    }
    cudaMemcpyAttributes attributes{};
    attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
    size_t first = 0;
#if CUDART_VERSION >= 13000
    return Check("Copy", cudaMemcpyBatchAsync(to.data(), from.data(), bytes.data(), pieces.size(),
                                              &attributes, &first, 1, in));
#else
    size_t failed = 0;
    return Check("Copy",
                 cudaMemcpyBatchAsync(to.data(), const_cast<void**>(from.data()), bytes.data(),
                                      pieces.size(), &attributes, &first, 1, &failed, in));
#endif
  }

  Status Word(const char* name, WriteWord* call, Stream stream, const uint32_t* word,
              uint32_t value, unsigned flags) {
    const CallersThread caller(get_context_, set_context_);
    CAIRN_RETURN_IF_ERROR(Enter());
    if (!info_.waits_for_words) {
      return Status(StatusCode::kInvalidArgument,
                    std::string("device: ") + name + ": this driver has no words in streams");
    }
    CAIRN_ASSIGN_OR_RETURN(cudaStream_t in, Find(stream));
    const CUresult result = call(in, reinterpret_cast<CUdeviceptr>(word), value, flags);
    if (result == CUDA_SUCCESS) return Status::Ok();
    return Status(StatusCode::kIoError,
                  std::string("device: ") + name + ": CUDA error " + std::to_string(result));
  }

  static void Release(void* at, Memory memory) {
    static_cast<void>(memory == Memory::kDevice ? cudaFree(at) : cudaFreeHost(at));
  }

  const std::shared_ptr<io::Scheduler> scheduler_;
  const int ordinal_;
  DeviceInfo info_;
  WriteWord* write_word_ = nullptr;
  WriteWord* wait_word_ = nullptr;
  GetContext* get_context_ = nullptr;
  SetContext* set_context_ = nullptr;
  mutable std::mutex mutex_;
  Handles<cudaStream_t> streams_;
  Handles<cudaEvent_t> events_;
  std::map<void*, Memory> memory_;
  Status lost_{};
};

}  // namespace

Result<std::unique_ptr<Device>> OpenCudaDevice(std::shared_ptr<io::Scheduler> scheduler,
                                               int ordinal) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaErrorInsufficientDriver || error == cudaErrorNoDevice) {
    return Status(StatusCode::kNotFound,
                  std::string("device: no CUDA device: ") + cudaGetErrorString(error));
  }
  if (error != cudaSuccess) return Failed("cudaGetDeviceCount", error);
  if (ordinal < 0 || ordinal >= count) {
    return Status(StatusCode::kNotFound, "device: there is no CUDA device " +
                                             std::to_string(ordinal) + "; there are " +
                                             std::to_string(count));
  }
  cudaDeviceProp properties;
  const cudaError_t asked = cudaGetDeviceProperties(&properties, ordinal);
  if (asked != cudaSuccess) return Failed("cudaGetDeviceProperties", asked);
  return std::unique_ptr<Device>(
      std::make_unique<CudaDevice>(std::move(scheduler), ordinal, properties));
}

}  // namespace cairn::gpu
