/* plotly waits before it reads a figure back: all figures wait together */
async function images([name, spec]) {
  const layout = { ...spec.layout, width: WIDTH, paper_bgcolor: "#ffffff", plot_bgcolor: "#ffffff",
                   font: { color: "#1a2230", size: 13, family: "DejaVu Sans, Helvetica, Arial, sans-serif" } };
  for (const key of Object.keys(layout)) {
    if (/^[xy]axis/.test(key)) layout[key] = { gridcolor: "#e6e9ef", linecolor: "#dfe3ea", ...layout[key] };
  }
  const height = layout.height || 400;
  const svg = await Plotly.toImage({ data: spec.data, layout }, { format: "svg", width: WIDTH, height });
  const image = new Image();
  image.src = svg;
  await image.decode();
  const canvas = document.createElement("canvas");
  canvas.width = WIDTH * SCALE;
  canvas.height = height * SCALE;
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  for (const [format, address] of [["svg", svg], ["png", canvas.toDataURL("image/png")]]) {
    const out = document.createElement("output");
    out.dataset.name = name;
    out.dataset.format = format;
    out.textContent = address;
    document.body.append(out);
  }
}
Promise.all(Object.entries(JSON.parse(document.getElementById("figures").textContent)).map(images));
