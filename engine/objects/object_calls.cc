// SPDX-License-Identifier: Apache-2.0
//
// Puts and gets of many objects, on the caller's thread or as a job with a ticket for each.
#include <algorithm>
#include <utility>

#include "base/core/out_of_memory.h"
#include "engine/objects/object_names.h"
#include "engine/objects/object_space.h"
#include "engine/tree/ops/decisions.h"

namespace cairn::engine {

namespace {

using TicketStates = std::vector<std::shared_ptr<TicketState>>;

// One item of a job.
template <typename Item>
TicketStates MakeStates(const io::World& world, std::span<const Item> items,
                        const CompletionQueue* queue) {
  TicketStates states;
  states.reserve(items.size());
  for (const Item& item : items) {
    auto state = std::make_shared<TicketState>(world, queue == nullptr ? nullptr : queue->state(),
                                               item.user_data);
    state->is_job = true;
    states.push_back(std::move(state));
  }
  return states;
}

std::vector<Ticket> TicketsOf(const TicketStates& states) {
  std::vector<Ticket> tickets;
  tickets.reserve(states.size());
  for (const auto& state : states) tickets.emplace_back(state);
  return tickets;
}

}  // namespace

Result<ObjectPuts::Into> ObjectSpace::IntoOf(const PutOptions& options) const {
  CAIRN_RETURN_IF_ERROR(deps_.lifecycle->CheckWritable(options.durability));
  CAIRN_RETURN_IF_ERROR(CheckNameBytes(options.ns, kMaxNameBytes, "namespace"));
  if (options.if_present > IfPresent::kReplace) {
    return Status(StatusCode::kInvalidArgument, "if_present is none that exists");
  }
  const auto id = static_cast<uint64_t>(options.object_class);
  std::shared_ptr<const ModelSpec> spec;
  {
    std::lock_guard lock(deps_.mutex());
    spec = deps_.tree().FindModel(id);
  }
  if (spec == nullptr || !ClassOf(*spec).has_value()) {
    return Status(StatusCode::kInvalidArgument,
                  "object_class " + std::to_string(id) + " is none that RegisterClass gave");
  }
  return ObjectPuts::Into{.space = SpaceOf(options.ns),
                          .model = ModelId{id},
                          .spec = std::move(spec),
                          .options = options,
                          .deadline_ns = deps_.lifecycle->Deadline(options.timeout_ns)};
}

Result<std::vector<PutResult>> ObjectSpace::Put(std::span<const ObjectPut> puts,
                                                const PutOptions& options) {
  const Lifecycle::Call call(deps_.lifecycle);
  CAIRN_ASSIGN_OR_RETURN(const ObjectPuts::Into into, IntoOf(options));
  std::vector<PutResult> results(puts.size());
  uint64_t sequence = 0;
  puts_.Run(
      into, puts, [](size_t, const TicketState**) { return true; },
      [&](size_t i, ObjectPuts::Outcome outcome) {
        sequence = std::max(sequence, outcome.sequence);
        results[i] = {std::move(outcome.status), outcome.stored};
      });
  if (sequence == 0) return results;
  const Status safe = deps_.tickets->WaitFor(sequence, options.durability, into.deadline_ns);
  for (PutResult& result : results) {
    if (result.status.ok()) result.status = safe;
  }
  return results;
}

Result<std::vector<Ticket>> ObjectSpace::PutAsync(std::span<const ObjectPut> puts,
                                                  const PutOptions& options) {
  const Lifecycle::Call call(deps_.lifecycle);
  struct Job {
    std::string ns;
    PutOptions options;
    std::vector<ObjectPut> puts;
    TicketStates states;
  };
  const auto job = std::make_shared<Job>();
  job->ns = options.ns;
  job->options = options;
  job->options.ns = job->ns;
  job->options.queue = nullptr;
  job->puts.assign(puts.begin(), puts.end());
  job->states = MakeStates(deps_.world, puts, options.queue);
  // Its options are the job's.
  CAIRN_ASSIGN_OR_RETURN(const ObjectPuts::Into into, IntoOf(job->options));
  std::vector<Ticket> tickets = TicketsOf(job->states);
  deps_.executor->Post([this, store = deps_.callbacks->Hold(), job, into] {
    const Durability durability = job->options.durability;
    const auto begins = [&](size_t i, const TicketState** ticket) {
      *ticket = job->states[i].get();
      return job->states[i]->BeginJob();
    };
    const auto ended = [&](size_t i, ObjectPuts::Outcome outcome) {
      const std::shared_ptr<TicketState>& state = job->states[i];
      state->length = job->puts[i].value.size();
      if (!outcome.status.ok() || durability == Durability::kMemory) {
        state->Finish(std::move(outcome.status));
        return;
      }
      state->Release();
      deps_.tickets->Register(outcome.sequence, durability, state);
      deps_.log->Request(outcome.sequence, durability == Durability::kPower);
      state->FinishIfCancelled();
    };
    const Status ran = CatchBadAlloc([&] { puts_.Run(into, job->puts, begins, ended); });
    for (const auto& state : job->states) {  // If memory ran out some may not have ended.
      if (!ran.ok() && !state->released()) state->Finish(ran);
    }
  });
  return tickets;
}

Result<ObjectGets::From> ObjectSpace::FromOf(const GetOptions& options, size_t at_once) const {
  CAIRN_RETURN_IF_ERROR(deps_.lifecycle->CheckUsable());
  CAIRN_RETURN_IF_ERROR(CheckNameBytes(options.ns, kMaxNameBytes, "namespace"));
  return ObjectGets::From{.space = SpaceOf(options.ns),
                          .object_class = options.object_class,
                          .deadline_ns = deps_.lifecycle->Deadline(options.timeout_ns),
                          .at_once = at_once};
}

Result<std::vector<GetResult>> ObjectSpace::Get(std::span<const ObjectGet> gets,
                                                const GetOptions& options) {
  const Lifecycle::Call call(deps_.lifecycle);
  CAIRN_ASSIGN_OR_RETURN(const ObjectGets::From from, FromOf(options, kObjectsAtOnce));
  std::vector<GetResult> results(gets.size());
  gets_.Run(
      from, gets, [](size_t, const TicketState**) { return true; },
      [&](size_t i, GetResult result) { results[i] = std::move(result); });
  return results;
}

Result<std::vector<Ticket>> ObjectSpace::GetAsync(std::span<const ObjectGet> gets,
                                                  const GetOptions& options) {
  const Lifecycle::Call call(deps_.lifecycle);
  CAIRN_ASSIGN_OR_RETURN(const ObjectGets::From from, FromOf(options, kObjectsAtOnceAsync));
  struct Job {
    std::vector<ObjectGet> gets;
    TicketStates states;
  };
  const auto job = std::make_shared<Job>();
  job->gets.assign(gets.begin(), gets.end());
  job->states = MakeStates(deps_.world, gets, options.queue);
  std::vector<Ticket> tickets = TicketsOf(job->states);
  deps_.executor->Post([this, store = deps_.callbacks->Hold(), job, from] {
    const auto begins = [&](size_t i, const TicketState** ticket) {
      *ticket = job->states[i].get();
      return job->states[i]->BeginJob();
    };
    const auto ended = [&](size_t i, GetResult result) {
      job->states[i]->length = result.bytes;
      job->states[i]->Finish(std::move(result.status));
    };
    const Status ran = CatchBadAlloc([&] { gets_.Run(from, job->gets, begins, ended); });
    for (const auto& state : job->states) {
      if (!ran.ok()) state->Finish(ran);
    }
  });
  return tickets;
}

}  // namespace cairn::engine
