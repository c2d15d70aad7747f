// SPDX-License-Identifier: Apache-2.0
//
// A sequence of calls of the C API, over a store in memory: with handles that may be NULL, closed
// or of what was dropped, with sizes, numbers and names that may be none, and handles that are
// freed in any order. Each call gives what it promises: a code that exists, an error object exactly
// with an error, and a handle exactly without one. Whatever is read is what was appended there.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

#include "base/core/check.h"
#include "cairn/c.h"
#include "fuzz/input.h"

namespace {

constexpr size_t kSlots = 4, kCallsMax = 200;
constexpr uint32_t kTokensMax = 96;  // Tokens per append: more than a block of the prefix index.
constexpr uint64_t kLengthMax = 2000;
constexpr uint64_t kRowBytes = 8, kPlanes = 2;
constexpr const char* kNames[] = {"", "a", "b", "a longer name", nullptr};

// Every position has one token and one KV, whatever branch it is on.
uint32_t TokenAt(uint64_t position) { return static_cast<uint32_t>(position * 7 + 3); }
unsigned char ByteAt(uint64_t position, size_t byte) {
  return static_cast<unsigned char>(position * 31 + byte);
}

// A handle per slot, freed where another takes its place.
template <typename Handle, void (*kFree)(Handle*)>
class Slots {
 public:
  ~Slots() {
    for (Handle* handle : handles_) kFree(handle);
  }
  Handle*& operator[](size_t i) { return handles_[i % kSlots]; }
  void Set(size_t i, Handle* handle) {
    kFree(handles_[i % kSlots]);
    handles_[i % kSlots] = handle;
  }

 private:
  Handle* handles_[kSlots] = {};
};

class Caller {
 public:
  Caller(const uint8_t* data, size_t bytes) : input_(data, bytes) {
    cairn_options options;
    cairn_options_init(&options, sizeof options);
    options.create_if_missing = true;
    options.segment_bytes = 256 << 10;
    options.max_memory_bytes = 16 << 20;
    options.hot_tail_bytes = 1 << 20;
    options.submit_copy_max_bytes = 256;  // So that appends are borrowed, too.
    options.executor_threads = 1;
    CAIRN_CHECK(cairn_store_open(":memory:", &options, &store_, nullptr) == CAIRN_OK);
    cairn_plane_init(&planes_[0], sizeof planes_[0]);
    cairn_plane_init(&planes_[1], sizeof planes_[1]);
    cairn_layer_group_init(&group_, sizeof group_);
    cairn_model_spec_init(&spec_, sizeof spec_);
    CAIRN_CHECK(cairn_layer_group_full_attention(&group_, planes_, 1, 1, kRowBytes / 2,
                                                 CAIRN_DTYPE_BF16, nullptr) == CAIRN_OK);
    spec_.name = "fuzz";
    spec_.groups = &group_;
    spec_.group_count = 1;
    CAIRN_CHECK(cairn_store_register_model(store_, &spec_, CAIRN_DURABILITY_MEMORY, &model_,
                                           nullptr) == CAIRN_OK);
    CAIRN_CHECK(cairn_objects_new(store_, &objects_, nullptr) == CAIRN_OK);
    CAIRN_CHECK(cairn_store_new_completion_queue(store_, &queue_, nullptr) == CAIRN_OK);
    CAIRN_CHECK(cairn_kv_buffer_new(&spec_, kLengthMax + kTokensMax, &kv_, nullptr) == CAIRN_OK);
    for (uint64_t p = 0; p < cairn_kv_buffer_tokens(kv_); ++p) {
      tokens_.push_back(TokenAt(p));
      for (uint32_t plane = 0; plane < kPlanes; ++plane) {
        auto* const row = static_cast<unsigned char*>(cairn_kv_buffer_row(kv_, 0, 0, plane, 0, p));
        for (size_t i = 0; i < kRowBytes; ++i) row[i] = ByteAt(p, plane * kRowBytes + i);
      }
    }
    cairn_prefix_hit_init(&hit_, sizeof hit_);
  }
  ~Caller() {
    // Memory that calls borrowed is theirs until they are over.
    cairn_store_close(store_, nullptr);
    cairn_store_free(store_);
    cairn_objects_free(objects_);
    cairn_completion_queue_free(queue_);
    cairn_kv_buffer_free(kv_);
  }
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;

  void Run() {
    for (size_t calls = 0; calls < kCallsMax && !input_.empty(); ++calls) {
      const uint8_t call = input_.Take<uint8_t>();
      slot_ = input_.Take<uint8_t>();
      other_ = slot_ / 16;
      switch (call % 8) {
        case 0: OfBranches(call / 8); break;
        case 1:
        case 2:
        case 3: OfAppends(call / 8); break;
        case 4: OfReads(call / 8); break;
        case 5: OfTickets(call / 8); break;
        case 6: OfObjects(call / 8); break;
        default: OfStore(call / 8); break;
      }
    }
  }

 private:
  // `out`: where the call gives a handle.
  template <typename Handle>
  bool Told(cairn_code code, Handle** out) {
    CAIRN_CHECK((*out != nullptr) == (code == CAIRN_OK));
    return Told(code);
  }
  bool Told(cairn_code code) {
    CAIRN_CHECK(code >= CAIRN_OK && code <= CAIRN_OUT_OF_MEMORY);
    CAIRN_CHECK((error_ == nullptr) == (code == CAIRN_OK));
    CAIRN_CHECK(cairn_error_code(error_) == code);
    CAIRN_CHECK((*cairn_error_message(error_) == 0) == (code == CAIRN_OK));
    cairn_error_free(error_);
    error_ = nullptr;
    return code == CAIRN_OK;
  }

  const char* Name() { return kNames[input_.Take<uint8_t>() % std::size(kNames)]; }
  cairn_durability Durability() { return input_.Take<uint8_t>() % 4; }  // One is none.
  // Mostly what makes sense.
  uint64_t Position() {
    const uint8_t byte = input_.Take<uint8_t>();
    return byte == 255 ? UINT64_MAX : byte;
  }
  // Some structs are longer than the library's, shorter, or of no size.
  template <typename T>
  void Size(T* given) {
    const uint8_t how = input_.Take<uint8_t>();
    if (how < 250) return;
    given->struct_size = how == 250 ? input_.Take<uint16_t>() : sizeof(T) / 16 * 8;
    // Memory behind a struct must not be read: the size never claims more than the struct.
    if (given->struct_size > sizeof(T) && given->struct_size <= 4096) given->struct_size |= 1;
  }

  cairn_branch_options BranchOptions() {
    cairn_branch_options options;
    cairn_branch_options_init(&options, sizeof options);
    options.name = Name();
    options.ns = Name();
    options.durability = Durability();
    options.priority = slot_;
    Size(&options);
    return options;
  }
  // Always with a length: what others append meanwhile must not move the tokens.
  cairn_append_options AppendOptions(uint64_t length) {
    cairn_append_options options;
    cairn_append_options_init(&options, sizeof options);
    const uint8_t flags = input_.Take<uint8_t>();
    options.durability = Durability();
    options.overload = flags % 4 == 0;
    options.has_expected_length = true;
    options.expected_length = length;
    options.ends_turn = flags % 16 == 2;
    if (flags % 3 == 0) options.queue = queue_;
    if (flags % 32 == 3) options.timeout_ns = 0;
    if (flags == 255) options.struct_size = flags;
    return options;
  }

  // The content of a delta of `count` positions from `begin` on. Its parts live until the next one,
  // the KV that it names as long as this.
  const cairn_delta* Delta(uint64_t begin, uint32_t count) {
    cairn_delta_init(&delta_, sizeof delta_);
    const uint8_t parts = input_.Take<uint8_t>();
    if (begin > kLengthMax) return &delta_;
    delta_.tokens = tokens_.data() + begin;
    delta_.token_count = count;
    delta_.approximate = parts % 16 == 15;
    if (parts % 2 == 0 && count != 0) {
      cairn_owned_kv_view* view = nullptr;
      CAIRN_CHECK(cairn_kv_buffer_view_of(kv_, begin, begin + count, &view, nullptr) == CAIRN_OK);
      views_.Set(views_next_++, view);
      delta_.kv = cairn_owned_kv_view_view(view);
    }
    if (parts % 4 == 1) {
      cairn_sampler_state_init(&sampler_, sizeof sampler_);
      sampler_.generator = parts / 4 % 5;
      sampler_.blob_name = parts / 4 % 5 == CAIRN_GENERATOR_NAMED ? "x" : nullptr;
      sampler_.blob = {tokens_.data(), size_t{parts}};
      delta_.sampler = &sampler_;
      Size(&sampler_);
    }
    if (parts % 8 == 3) {
      span_ = {begin, begin + Position(), {1, 2}, false};
      delta_.spans = &span_;
      delta_.span_count = 1;
    }
    Size(&delta_);
    return &delta_;
  }

  void OfBranches(uint8_t call) {
    cairn_branch* made = nullptr;
    const cairn_branch_options options = BranchOptions();
    cairn_branch* const branch = branches_[slot_];
    switch (call % 8) {
      case 0:
      case 1:
        Told(cairn_store_create_branch(store_, model_ + slot_ / 128, &options, &made, &error_),
             &made);
        break;
      case 2:
        Told(cairn_branch_fork_at(branch, Position(), &options, &made, &error_), &made);
        break;
      case 3: Told(cairn_store_find_branch(store_, Name(), Name(), &made, &error_), &made); break;
      case 4: Told(cairn_branch_rewind(branch, Position(), Durability(), &error_)); return;
      case 5: Told(cairn_branch_rename(branch, Name(), Durability(), &error_)); return;
      case 6: Told(cairn_branch_drop(branch, Durability(), &error_)); return;
      default: Told(cairn_store_get_branch(store_, Position(), &made, &error_), &made); break;
    }
    branches_.Set(other_, made);
  }

  void OfAppends(uint8_t call) {
    cairn_branch* const branch = branches_[slot_];
    uint64_t length = 0;
    if (cairn_branch_length(branch, &length, nullptr) != CAIRN_OK) length = Position();
    const cairn_append_options options = AppendOptions(length);
    const uint32_t count = input_.Take<uint8_t>() % (kTokensMax + 1);
    cairn_ticket* ticket = nullptr;
    cairn_draft* draft = nullptr;
    switch (call % 6) {
      case 0:
      case 1:
        Told(cairn_branch_append_sync(branch, Delta(length, count), &options, nullptr, &error_));
        return;
      case 2:
        Told(cairn_branch_append(branch, Delta(length, count), &options, &ticket, &error_),
             &ticket);
        break;
      case 3:
        Told(cairn_branch_begin_append(branch, count, &draft, &error_), &draft);
        drafts_.Set(other_, draft);
        return;
      case 4:
        Told(cairn_draft_commit(drafts_[other_], Delta(length, count), &options, &ticket, &error_),
             &ticket);
        break;
      default:
        if (const cairn_delta* const delta = Delta(length, count); delta->kv != nullptr) {
          Told(cairn_draft_put(drafts_[other_], slot_ / 64, delta->kv->groups, &error_));
          Told(cairn_branch_fill(branch, delta->kv, &options, &error_));
        }
        return;
    }
    tickets_.Set(other_, ticket);
  }

  void OfReads(uint8_t call) {
    cairn_branch* const branch = branches_[slot_];
    const uint64_t begin = Position(), end = std::max(begin, Position());
    switch (call % 4) {
      case 0: Restore(branch, begin, end); return;
      case 1: {
        uint32_t tokens[kLengthMax];
        size_t count = 0;
        if (!Told(cairn_branch_read_tokens(branch, begin, end, tokens, kLengthMax, &count,
                                           &error_))) {
          return;
        }
        CAIRN_CHECK(std::equal(tokens, tokens + count, tokens_.data() + begin));
        return;
      }
      case 2: {
        cairn_branch_info* info = nullptr;
        Told(cairn_branch_get_info(branch, &info, &error_), &info);
        cairn_branch_info_free(info);
        cairn_state_at* state = nullptr;
        Told(cairn_branch_sampler_at(branch, begin, &state, &error_), &state);
        cairn_state_at_free(state);
        return;
      }
      default: {
        cairn_kv_holes* holes = nullptr;
        Told(cairn_branch_evicted_kv(branch, begin, end, &holes, &error_), &holes);
        cairn_kv_holes_free(holes);
        cairn_path* path = nullptr;
        Told(cairn_branch_path(branch, &path, &error_), &path);
        cairn_path_free(path);
        Told(cairn_branch_prefetch(branch, begin, end, &error_));
      }
    }
  }

  void Restore(cairn_branch* branch, uint64_t begin, uint64_t end) {
    const uint64_t room = std::min(end, kLengthMax);
    if (begin > room) return;
    cairn_kv_buffer* back = nullptr;
    cairn_owned_kv_view* view = nullptr;
    CAIRN_CHECK(cairn_kv_buffer_new(&spec_, room, &back, nullptr) == CAIRN_OK);
    CAIRN_CHECK(cairn_kv_buffer_view_of(back, begin, room, &view, nullptr) == CAIRN_OK);
    cairn_restore_request request;
    cairn_restore_request_init(&request, sizeof request);
    request.begin = begin;
    request.end = end;
    if (begin != room) request.into = cairn_owned_kv_view_view(view);
    Size(&request);
    cairn_layer_progress* progress = nullptr;
    CAIRN_CHECK(cairn_layer_progress_new(slot_ % 2, &progress, nullptr) == CAIRN_OK);
    cairn_restore_result* result = nullptr;
    const bool from_hit = input_.Take<uint8_t>() % 4 == 0;
    const cairn_code code =
        from_hit ? cairn_store_restore(store_, &hit_, &request, progress, &result, &error_)
                 : cairn_branch_restore(branch, &request, progress, &result, &error_);
    if (Told(code, &result) && result->kv_end_count != 0) {
      for (uint64_t p = begin; p < std::min(room, result->kv_ends[0]); ++p) {
        for (uint32_t plane = 0; plane < kPlanes; ++plane) {
          CAIRN_CHECK(std::memcmp(cairn_kv_buffer_row(back, 0, 0, plane, 0, p),
                                  cairn_kv_buffer_row(kv_, 0, 0, plane, 0, p), kRowBytes) == 0);
        }
      }
    }
    cairn_restore_result_free(result);
    cairn_layer_progress_free(progress);
    cairn_owned_kv_view_free(view);
    cairn_kv_buffer_free(back);
  }

  void OfTickets(uint8_t call) {
    cairn_ticket* const ticket = tickets_[slot_];
    switch (call % 4) {
      case 0: Told(cairn_ticket_wait(ticket, slot_ % 2 == 0 ? 0 : 1'000'000, &error_)); return;
      case 1: Told(cairn_ticket_cancel(ticket, &error_)); return;
      case 2: tickets_.Set(slot_, nullptr); return;
      default: {
        cairn_completion ended[3];
        const size_t count = cairn_completion_queue_drain(queue_, ended, slot_ % 4);
        for (size_t i = 0; i < count; ++i) {
          CAIRN_CHECK(cairn_ticket_status(ended[i].ticket, nullptr) == ended[i].code);
          cairn_ticket_free(ended[i].ticket);
        }
      }
    }
  }

  void OfObjects(uint8_t call) {
    const cairn_bytes key = {tokens_.data() + slot_ % 8, size_t{slot_} / 64};
    cairn_object_results* results = nullptr;
    switch (call % 4) {
      case 0: {
        cairn_object_class object_class;
        cairn_object_class_init(&object_class, sizeof object_class);
        object_class.name = Name();
        object_class.page_bytes = 64u << (slot_ % 8);
        Size(&object_class);
        Told(cairn_objects_register_class(objects_, &object_class, &class_, &error_));
        return;
      }
      case 1: {
        cairn_object_put put;
        cairn_object_put_init(&put, sizeof put);
        put.key = key;
        put.value = key;
        Size(&put);
        cairn_put_options options;
        cairn_put_options_init(&options, sizeof options);
        options.object_class = class_;
        options.if_present = input_.Take<uint8_t>() % 3;
        options.durability = Durability();
        Told(cairn_objects_put_batch(objects_, &put, 1, &options, &results, &error_), &results);
        break;
      }
      case 2: {
        unsigned char into[8];
        cairn_object_get get;
        cairn_object_get_init(&get, sizeof get);
        get.key = key;
        get.into = into;
        get.into_size = sizeof into;
        Size(&get);
        if (Told(cairn_objects_get_batch(objects_, &get, 1, nullptr, &results, &error_),
                 &results) &&
            results->items[0].code == CAIRN_OK) {
          CAIRN_CHECK(results->items[0].bytes == key.size);
          CAIRN_CHECK(std::memcmp(into, key.data, key.size) == 0);
        }
        break;
      }
      default:
        Told(cairn_objects_delete(objects_, &key, slot_ % 2, Name(), Durability(), &results,
                                  &error_),
             &results);
    }
    cairn_object_results_free(results);
  }

  // A plan of a search, and its restore; a prompt of all branches.
  void Blend() {
    cairn_prefix_query query;
    cairn_prefix_query_init(&query, sizeof query);
    query.model = model_;
    query.tokens = tokens_.data() + slot_;
    query.token_count = tokens_.size() - slot_;
    query.lease_ns = slot_ % 2 * 1'000'000;
    Size(&query);
    cairn_blend_options* options = nullptr;
    CAIRN_CHECK(cairn_blend_options_create(&options, nullptr) == CAIRN_OK);
    const std::string number = std::to_string(input_.Take<uint8_t>());
    Told(cairn_blend_options_set(options, slot_ % 2 == 0 ? "min_tokens" : "recompute_first",
                                 number.c_str(), &error_));
    Told(cairn_blend_options_set(options, "position_correction", "off", &error_));
    cairn_blend_plan* plan = nullptr;
    if (Told(cairn_store_plan_blend(store_, &query, options, &plan, &error_), &plan)) {
      cairn_kv_buffer* back = nullptr;
      CAIRN_CHECK(cairn_kv_buffer_new(&spec_, plan->tokens, &back, nullptr) == CAIRN_OK);
      cairn_restore_request request;
      cairn_restore_request_init(&request, sizeof request);
      request.begin = Position();
      request.into = cairn_kv_buffer_view(back);
      Size(&request);
      cairn_restore_result* result = nullptr;
      Told(cairn_store_restore_plan(store_, plan, &request, nullptr, &result, &error_), &result);
      cairn_restore_result_free(result);
      cairn_kv_buffer_free(back);
      Told(cairn_store_release(store_, plan->lease, &error_));
    }
    cairn_blend_plan_free(plan);
    cairn_compose_document document;
    cairn_compose_document_init(&document, sizeof document);
    document.name = "";
    document.is_beginning = true;
    document.begin = Position();
    Size(&document);
    cairn_compose_request request;
    cairn_compose_request_init(&request, sizeof request);
    request.model = model_;
    request.documents = &document;
    request.document_count = 1;
    request.question = tokens_.data();
    request.question_count = slot_;
    Size(&request);
    cairn_composed* composed = nullptr;
    Told(cairn_store_compose(store_, &request, options, &composed, &error_), &composed);
    cairn_composed_free(composed);
    cairn_blend_options_free(options);
  }

  void OfStore(uint8_t call) {
    switch (call % 10) {
      case 0: Told(cairn_store_flush(store_, &error_)); return;
      case 1: Told(cairn_store_compact(store_, &error_)); return;
      case 2: {
        cairn_prefix_query query;
        cairn_prefix_query_init(&query, sizeof query);
        query.model = model_;
        query.tokens = tokens_.data();
        query.token_count = slot_ * 4;
        query.ns = Name();
        query.lease_ns = slot_ % 2 * 1'000'000;
        query.confirm = slot_ % 4 != 0;
        Size(&query);
        Told(cairn_store_find_prefix(store_, &query, &hit_, &error_));
        return;
      }
      case 3: {
        cairn_branch* made = nullptr;
        const cairn_branch_options options = BranchOptions();
        Told(cairn_store_fork(store_, &hit_, Position(), &options, &made, &error_), &made);
        branches_.Set(other_, made);
        return;
      }
      case 4: Told(cairn_store_release(store_, hit_.lease, &error_)); return;
      case 5: WriteBatch(); return;
      case 8: Blend(); return;
      case 9: {
        cairn_namespace_policy policy;
        cairn_namespace_policy_init(&policy, sizeof policy);
        policy.index = CAIRN_INDEX_CHUNKS;
        Size(&policy);
        Told(cairn_store_set_namespace(store_, "", &policy, Durability(), &error_));
        return;
      }
      case 6: {
        cairn_branch_page* page = nullptr;
        const cairn_bytes cursor = {tokens_.data(), size_t{slot_} % 16};
        Told(cairn_store_list_branches(store_, Name(), Name(), slot_ % 4, &cursor, &page, &error_),
             &page);
        cairn_branch_page_free(page);
        return;
      }
      default:
        // Closing is for the end, mostly: after it little is left to be tried.
        if (input_.Take<uint8_t>() == 0) Told(cairn_store_close(store_, &error_));
    }
  }

  void WriteBatch() {
    cairn_write_batch* batch = nullptr;
    CAIRN_CHECK(cairn_write_batch_new(&batch, nullptr) == CAIRN_OK);
    for (uint8_t ops = input_.Take<uint8_t>() % 4; ops > 0; --ops) {
      cairn_branch* const branch = branches_[input_.Take<uint8_t>()];
      const int32_t created = static_cast<int32_t>(input_.Take<uint8_t>()) % 4 - 1;
      uint64_t length = 0;
      if (branch != nullptr) cairn_branch_length(branch, &length, nullptr);
      const cairn_branch_options options = BranchOptions();
      switch (input_.Take<uint8_t>() % 5) {
        case 0: Told(cairn_write_batch_create(batch, model_, &options, nullptr, &error_)); break;
        case 1:
          Told(cairn_write_batch_fork(batch, branch, created, Position(), &options, nullptr,
                                      &error_));
          break;
        case 2:
          Told(cairn_write_batch_append(batch, branch, created, Delta(length, other_), length,
                                        &error_));
          break;
        case 3: Told(cairn_write_batch_rewind(batch, branch, created, Position(), &error_)); break;
        default: Told(cairn_write_batch_drop(batch, branch, created, &error_)); break;
      }
    }
    cairn_branch* created[4] = {};
    const cairn_append_options options = AppendOptions(0);
    if (Told(cairn_store_write(store_, batch, &options, created, 4, nullptr, &error_))) {
      for (size_t i = 0; i < cairn_write_batch_created_count(batch); ++i) {
        branches_.Set(other_ + i, created[i]);
      }
    }
    cairn_write_batch_free(batch);
  }

  cairn::fuzz::Input input_;
  uint8_t slot_ = 0, other_ = 0;
  cairn_error* error_ = nullptr;
  cairn_store* store_ = nullptr;
  cairn_objects* objects_ = nullptr;
  cairn_completion_queue* queue_ = nullptr;
  cairn_kv_buffer* kv_ = nullptr;
  cairn_plane planes_[kPlanes];
  cairn_layer_group group_;
  cairn_model_spec spec_;
  uint64_t model_ = 0, class_ = 0;
  std::vector<uint32_t> tokens_;
  cairn_prefix_hit hit_;
  cairn_delta delta_;
  cairn_sampler_state sampler_;
  cairn_content_span span_;
  size_t views_next_ = 0;
  Slots<cairn_owned_kv_view, cairn_owned_kv_view_free> views_;
  Slots<cairn_branch, cairn_branch_free> branches_;
  Slots<cairn_ticket, cairn_ticket_free> tickets_;
  Slots<cairn_draft, cairn_draft_free> drafts_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  Caller(data, bytes).Run();
  return 0;
}
