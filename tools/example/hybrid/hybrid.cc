// SPDX-License-Identifier: Apache-2.0
//
// KV of a hybrid model: of each layer group no more is given than its retention rule needs. A
// prompt is appended at once, the next token layer by layer, as a forward pass makes it.
#include <cairn/store.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

constexpr uint64_t kWindow = 64, kSinks = 4;
enum Group : uint32_t { kFull, kWindowed, kState, kGroups };

void Check(const cairn::Status& status) {
  if (status.ok()) return;
  std::puts(status.ToString().c_str());
  std::exit(1);
}

// What an engine has of one group: rows of memory, [layer][plane][row].
class Cache {
 public:
  Cache(uint32_t group, const cairn::LayerGroup& shape, uint64_t rows)
      : group_(group), shape_(shape), rows_(rows), bytes_(rows * shape.token_bytes()) {}

  std::vector<std::byte>& bytes() { return bytes_; }

  // Of positions [position, position + count), which lie from `row` on. A view owns nothing: this
  // one's arrays are the cache's, until the next.
  cairn::GroupView View(uint64_t position, uint64_t count, uint64_t row) {
    return ViewOf(0, shape_.layers, position, count, row);
  }
  // The same of one layer, as Draft::Put takes it: each plane has one base.
  cairn::GroupView LayerView(uint32_t layer, uint64_t position, uint64_t count, uint64_t row) {
    return ViewOf(layer, 1, position, count, row);
  }

 private:
  cairn::GroupView ViewOf(uint32_t first, uint32_t layers, uint64_t position, uint64_t count,
                          uint64_t row) {
    bases_.assign(shape_.planes.size(), {});
    planes_.clear();
    const uint64_t layer_bytes = bytes_.size() / shape_.layers;
    uint64_t plane_offset = 0;
    for (size_t i = 0; i < shape_.planes.size(); ++i) {
      const uint64_t head = shape_.planes[i].row_bytes, token = shape_.planes[i].heads * head;
      for (uint32_t layer = first; layer < first + layers; ++layer) {
        bases_[i].push_back(bytes_.data() + layer * layer_bytes + plane_offset + row * token);
      }
      planes_.push_back({.layer_bases = bases_[i],
                         .token_stride = static_cast<int64_t>(token),
                         .head_stride = static_cast<int64_t>(head)});
      plane_offset += rows_ * token;
    }
    return {.group = group_, .position = position, .count = count, .planes = planes_};
  }

  const uint32_t group_;
  const cairn::LayerGroup shape_;
  const uint64_t rows_;
  std::vector<std::byte> bytes_;
  std::vector<std::vector<std::byte*>> bases_;
  std::vector<cairn::PlaneView> planes_;
};

// The sinks lie in rows [0, 4) of the window's cache, the window behind them; one state is enough.
struct Caches {
  Caches(const cairn::ModelSpec& spec, uint64_t positions)
      : full(kFull, spec.groups[kFull], positions),
        window(kWindowed, spec.groups[kWindowed], kSinks + kWindow),
        state(kState, spec.groups[kState], 1) {}
  Cache full, window, state;
};

}  // namespace

int main() {
  auto store = cairn::Store::Open("hybrid.store", {.create_if_missing = true});
  Check(store.status());
  cairn::ModelSpec spec;
  spec.identity.name = "hybrid";
  spec.groups = {cairn::LayerGroup::FullAttention(2, 2, 8, cairn::Dtype::kBf16),
                 cairn::LayerGroup::SlidingWindow(2, 2, 8, cairn::Dtype::kBf16, kWindow, kSinks),
                 cairn::LayerGroup::Recurrent(2, 256)};
  const auto model = store->RegisterModel(spec);
  Check(model.status());
  auto chat = store->CreateBranch(*model);
  Check(chat.status());

  constexpr uint64_t kPrompt = 200;
  const std::vector<cairn::TokenId> prompt(kPrompt, 7);
  Caches made(spec, kPrompt + 1);
  for (Cache* cache : {&made.full, &made.window, &made.state}) {
    std::ranges::fill(cache->bytes(), std::byte{7});
  }

  // A view is one stretch of rows, so sinks that do not touch the window come first, alone.
  {
    const cairn::GroupView groups[] = {made.full.View(0, kSinks, 0),
                                       made.window.View(0, kSinks, 0)};
    const cairn::KvView kv{.groups = groups};
    Check(chat->AppendSync({.tokens = std::span(prompt).first(kSinks), .kv = &kv}).status());
  }
  // Then the rest: all rows of full attention, the window's last 64, and the state after all L
  // tokens, which is row L - 1.
  {
    const cairn::GroupView groups[] = {made.full.View(kSinks, kPrompt - kSinks, kSinks),
                                       made.window.View(kPrompt - kWindow, kWindow, kSinks),
                                       made.state.View(kPrompt - 1, 1, 0)};
    const cairn::KvView kv{.groups = groups};
    Check(chat->AppendSync({.tokens = std::span(prompt).subspan(kSinks), .kv = &kv}).status());
  }

  // The next token: Put takes a layer of a group when it is there, Commit the token and the state.
  // The engine's window is a ring: the new row takes the place of the oldest.
  {
    auto draft = chat->BeginAppend(1);
    Check(draft.status());
    for (uint32_t layer = 0; layer < 2; ++layer) {
      Check(draft->Put(layer, made.full.LayerView(layer, kPrompt, 1, kPrompt)));
      Check(draft->Put(layer, made.window.LayerView(layer, kPrompt, 1, kSinks)));
    }
    const cairn::TokenId token = 8;
    const cairn::GroupView state = made.state.View(kPrompt, 1, 0);
    const cairn::KvView kv{.groups = {&state, 1}};
    auto ticket = draft->Commit({.tokens = {&token, 1}, .kv = &kv}, {});
    Check(ticket.status());
    Check(ticket->Wait());
  }

  // Back again, at L = 201 for all groups. The sinks are a restore of their own, with the same end.
  constexpr uint64_t kLength = kPrompt + 1;
  Caches back(spec, kLength);
  {
    const cairn::GroupView groups[] = {back.full.View(0, kLength, 0),
                                       back.window.View(kLength - kWindow, kWindow, kSinks),
                                       back.state.View(kLength - 1, 1, 0)};
    const cairn::KvView kv{.groups = groups};
    Check(chat->Restore({.end = kLength, .into = &kv}).status());
    const cairn::GroupView sinks = back.window.View(0, kSinks, 0);
    const cairn::KvView first{.groups = {&sinks, 1}};
    Check(chat->Restore({.end = kLength, .into = &first}).status());
  }
  const bool equal = back.full.bytes() == made.full.bytes() &&
                     back.window.bytes() == made.window.bytes() &&
                     back.state.bytes() == made.state.bytes();
  std::printf("%d tokens, KV and state %s\n", static_cast<int>(kLength), equal ? "equal" : "lost");
  return equal ? 0 : 1;
}
