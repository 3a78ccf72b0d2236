// Words of a text: where the model looked is laid over the picture while a word is pointed at or has the focus.
(() => {
  const show = (word, on) => {
    const box = word.closest(".bc-captions");
    const heat = box && box.querySelector(".bc-heat");
    if (!heat) return;
    const address = word.dataset.heat;
    heat.hidden = !(on && address);
    if (on && address) heat.src = address;
  };
  const wordOf = (event) => event.target instanceof Element && event.target.closest(".bc-word");
  for (const [name, on] of [["mouseover", true], ["focusin", true], ["mouseout", false], ["focusout", false]]) {
    document.addEventListener(name, (event) => { const word = wordOf(event); if (word) show(word, on); });
  }
})();
