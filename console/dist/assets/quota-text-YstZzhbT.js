import{ac as n,C as e}from"./base-D4AOG1BP.js";const r=(t,s)=>t.endsWith("_bytes")?n(s):t.endsWith("_per_second")?`${e(s)}/s`:e(s);export{r as s};
