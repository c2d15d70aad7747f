// SPDX-License-Identifier: Apache-2.0
//
// Takes what steps of generation compute out of a GPU without stopping it.
//
// A serving engine computes the next token of many sequences in one step, mostly as a CUDA graph
// that it launches again and again. One kernel at its end gathers the new rows of all sequences
// into a slot of a ring on the device; behind the step a stream of lower priority copies the slot
// to the host; from there each row is appended to its branch like any KV in host memory.
//
//   GpuSteps steps = *GpuSteps::Make(gpu, model, view);   // the rows of one step
//   steps.Enqueue(stream);                                // once, while the graph is captured
//   ...
//   auto step = steps.Begin(stream);                      // before each launch; may be kBusy
//   cudaGraphLaunch(graph, stream);
//   cudaEventRecord(done, stream);
//   if (step.ok()) step->End(done);
//   ...                                                   // while the next step runs
//   step->Wait();
//   branch.Append({.tokens = ids, .kv = *step->Row(row, position)});
//
// The engine's stream never waits for any of this: where no slot is free the step is not saved, and
// Begin says so. Its KV can be given later (Branch::Fill), since it lies in the engine's blocks.
// Wait reports a step that was begun and not launched. A launch without Begin saves nothing, except
// right after such a step: then it is taken for that step.
//
// Not tied to a store. Its memory, slots * (rows of a step) on the device and the same amount
// pinned, is the caller's choice and counts toward no store's limit. It lives until every launch of
// what Enqueue enqueued, or captured, has ended: GpuSteps and all GpuStep of it gone, the graph
// must not run any more. In a child of fork() nothing of it may be used, and its destructors do
// nothing.
//
// Every call is thread-safe, those of one GpuStep among themselves are not. Wait blocks, and so do
// Make and the end of the last handle, which wait for copies of their own; the rest enqueues and
// returns. All calls may give kInvalidState (an empty handle, or a child of fork()), kOutOfMemory
// and, of the device, kIoError.
//
// A crash costs the steps that were not appended yet: nothing here is in a store before Append.
//
// Source: the ring of staging buffers of vLLM's OffloadingConnector and of SGLang's HiCache
// write-back, with the choice of the slot in the stream, so that the kernel can stand in a graph.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "cairn/gpu.h"
#include "cairn/kv_view.h"
#include "cairn/model.h"
#include "cairn/status.h"

namespace [[gnu::visibility("default")]] cairn {

class GpuStepsState;

struct GpuStepsOptions {
  uint32_t slots = 64;  // Steps that may be on their way; 1 to 1024.
};

// One step on its way to the host. Gives its slot back when it goes, whatever became of it: the
// slot is free again once neither kernel nor copy can touch it. It keeps the ring alive.
class GpuStep {
 public:
  GpuStep() = default;
  // For the library.
  GpuStep(std::shared_ptr<GpuStepsState> state, uint32_t slot)
      : state_(std::move(state)), slot_(slot) {}
  ~GpuStep();
  GpuStep(GpuStep&& other) noexcept = default;
  GpuStep& operator=(GpuStep&& other) noexcept;

  // `done`: an event of the device (a cudaEvent_t), recorded by the caller behind the step's
  // launch; it may go when this returns. Enqueues the copy; does not block. Once: kInvalidState the
  // second time. After an error the step does not arrive.
  Status End(uintptr_t done);
  // Whether its rows are in host memory. Does not block. kInvalidState: the step did not run
  // between Begin and `done`.
  Result<bool> Arrived() const;
  // Blocks until they are. Errors:
  //   kDeadlineExceeded: not yet; the step goes on.
  //   kInvalidState: as of Arrived; or End was not called, or failed.
  Status Wait(uint64_t timeout_ns = UINT64_MAX) const;
  // Row `row` of all groups, in host memory, as the KV of this position. View and memory live as
  // long as this step. Append copies up to Options::submit_copy_max_bytes in the call, and borrows
  // what is larger: then the step must outlive the ticket's release. Errors:
  //   kBusy: it has not arrived.
  //   kInvalidArgument: there is no such row, or the step's table named no place for it, as that of
  //     a graph's padding.
  Result<const KvView*> Row(uint32_t row, uint64_t position);

 private:
  std::shared_ptr<GpuStepsState> state_;
  uint32_t slot_ = 0;
  struct RowView {
    std::vector<GroupView> groups{};
    KvView kv{};
  };
  std::vector<std::unique_ptr<RowView>> rows_;
};

// The ring of slots and the kernels that fill it. The destructor may come before that of its steps.
class GpuSteps {
 public:
  // `view`: of memory of `gpu`; each group all layers, and `count` rows, as many as the others. A
  // row stands for a sequence of the step; which token of the blocks it is says the table, mostly
  // one of slots on the device, which the caller rewrites before each step. Its position is 0, and
  // the table's. The memory that the view names outlives all steps; its arrays need not. Groups
  // that keep one state a request (Retention::kPerRequest) are not for steps. Blocking: allocates,
  // and waits for the device. Errors:
  //   kInvalidArgument: the view, its device, its counts, or `slots`; names the field.
  //   kOutOfMemory, and what else the device says.
  static Result<GpuSteps> Make(const Gpu& gpu, const ModelSpec& model, const KvView& view,
                               const GpuStepsOptions& options = {});
  // Puts the kernels into the stream (a cudaStream_t), which may be being captured. Each time they
  // run is one step. kInvalidArgument: the stream is of another device.
  Status Enqueue(uintptr_t stream);
  // The next step that is enqueued, or launched, in this stream is saved. All steps run in one
  // stream, or in several that wait for each other. Puts a copy of eight bytes into the stream.
  // Errors:
  //   kBusy: no slot is free, so the step is not saved; it may be launched all the same.
  //   kInvalidArgument: the stream is of another device.
  Result<GpuStep> Begin(uintptr_t stream);

  uint64_t slot_bytes() const;  // Device memory per slot, and the same amount pinned.

 private:
  explicit GpuSteps(std::shared_ptr<GpuStepsState> state) : state_(std::move(state)) {}
  std::shared_ptr<GpuStepsState> state_;
};

}  // namespace cairn
